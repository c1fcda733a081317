//! Where a config comes from: the defaults in the binary, a file on top, arguments on top of that.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fault::{ConfigError, Fault, Kind};
use super::section::Context;
use super::suggest::Schema;
use super::tree::{self, Node, Value};
use super::{Config, DEFAULTS, SOLE, mask, read};
use crate::wire::dialect::Dialect;

/// A file above this is no config.
const LARGEST_FILE: u64 = 1 << 20;

/// Reads an environment variable. A function, so that tests have an environment of their own.
pub type Env = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Everything that a config is read from. Kept, so that a reload reads the same again.
#[derive(Clone)]
pub struct Sources {
    /// The file; none: the defaults alone.
    pub path: Option<PathBuf>,
    /// `--set KEY=VALUE`, in order: later ones win.
    pub sets: Vec<String>,
    /// `--listen ADDR`.
    pub listen: Option<String>,
    /// `--upstream URL`: one upstream for every path.
    pub upstream: Option<String>,
    /// The environment that credentials are read from.
    pub env: Env,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments may hold secrets.
        f.debug_struct("Sources").field("path", &self.path).field("sets", &self.sets.len()).finish_non_exhaustive()
    }
}

impl Default for Sources {
    /// The defaults alone, and the environment of the process.
    fn default() -> Self {
        let env: Env = Arc::new(|name| std::env::var(name).ok());
        Sources { path: None, sets: Vec::new(), listen: None, upstream: None, env }
    }
}

/// What was read.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The config, checked.
    pub config: Config,
    /// The same as a document, for people: defaults filled in, secrets masked.
    pub document: toml::Table,
}

/// The file to read: the one asked for, `$BACKSTOP_CONFIG`, `./backstop.toml`, or
/// `$XDG_CONFIG_HOME/backstop/backstop.toml` (`~/.config` without that variable). `None`: there is none.
/// A file that was asked for by name must be there.
pub fn locate(explicit: Option<&Path>, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<PathBuf>, ConfigError> {
    locate_in(Path::new(""), explicit, env)
}

pub(super) fn locate_in(
    dir: &Path,
    explicit: Option<&Path>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<PathBuf>, ConfigError> {
    let set = |name| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let asked = [(explicit.map(Path::to_owned), ""), (set("BACKSTOP_CONFIG"), " (from $BACKSTOP_CONFIG)")];
    if let Some((path, from)) = asked.into_iter().find_map(|(path, from)| Some((path?, from))) {
        return match dir.join(&path).try_exists() {
            Ok(true) => Ok(Some(dir.join(path))),
            Ok(false) => Err(ConfigError::of_source(&path.display().to_string(), format!("no such file{from}"))),
            Err(e) => Err(ConfigError::of_source(&path.display().to_string(), format!("can't be read: {e}{from}"))),
        };
    }
    let home = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let found = [Some(dir.join("backstop.toml")), home.map(|home| home.join("backstop/backstop.toml"))];
    Ok(found.into_iter().flatten().find(|path| path.is_file()))
}

/// Read and check a config. All faults are in the error, not just the first.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let text = sources.path.as_deref().map(|path| Ok::<_, ConfigError>((path, read_file(path)?))).transpose()?;
    load_text(sources, text.as_ref().map(|(path, text)| (*path, text.as_str())))
}

/// [`load`] with the file's text at hand.
pub(super) fn load_text(sources: &Sources, file: Option<(&Path, &str)>) -> Result<Loaded, ConfigError> {
    let defaults = tree::parse(0, "built-in defaults", DEFAULTS).map_err(ConfigError::new)?;
    let mut root = defaults.clone();
    for layer in layers(sources, file).map_err(ConfigError::new)? {
        root.overlay(layer);
    }
    fill_upstreams(&mut root, &defaults);
    let dir = sources.path.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let env = |name: &str| (sources.env)(name);
    let cx = Context::new(Schema::of(&defaults), &env);
    let config = read::config(&cx, &root, dir, sources.upstream.is_some());
    let faults = cx.into_faults();
    match (config, faults.is_empty()) {
        (Some(config), true) => Ok(Loaded { config, document: document(&root) }),
        (_, true) => Err(ConfigError::of_source(
            "backstop",
            "the config can't be used, and nothing says why: please report this",
        )),
        (_, false) => Err(refusal(faults, &root)),
    }
}

/// What asks only for things that are not built yet can still be shown.
fn refusal(faults: Vec<Fault>, root: &Node) -> ConfigError {
    let shown = faults.iter().all(|fault| fault.kind == Kind::Unavailable);
    let error = ConfigError::new(faults);
    if shown { error.with_document(document(root)) } else { error }
}

fn document(root: &Node) -> toml::Table {
    match root.to_toml() {
        toml::Value::Table(table) => mask::document(table),
        _ => toml::Table::new(),
    }
}

/// The layers on top of the defaults, lowest first.
fn layers(sources: &Sources, file: Option<(&Path, &str)>) -> Result<Vec<Node>, Vec<Fault>> {
    let (mut layers, mut faults) = (Vec::new(), Vec::new());
    if let Some((path, text)) = file {
        match tree::parse(1, &path.display().to_string(), text) {
            Ok(node) => layers.push(node),
            Err(more) => faults.extend(more),
        }
    }
    for (i, arg) in sources.sets.iter().enumerate() {
        match tree::parse_set(i + 2, arg) {
            Ok(node) => layers.push(node),
            Err(fault) => faults.push(fault),
        }
    }
    let rank = sources.sets.len() + 2;
    layers
        .extend(sources.listen.as_deref().map(|value| tree::argument(rank, "--listen", &["server", "listen"], value)));
    if let Some(url) = &sources.upstream {
        layers.push(tree::argument(rank, "--upstream", &["upstreams", SOLE, "dialect"], Dialect::Generic.name()));
        layers.push(tree::argument(rank, "--upstream", &["upstreams", SOLE, "base_url"], url));
    }
    if faults.is_empty() { Ok(layers) } else { Err(faults) }
}

/// Give every upstream the keys that it leaves out. The default file writes them down once, at the built-in upstream
/// that is named after the default dialect; where an upstream is and what it speaks is its own.
fn fill_upstreams(root: &mut Node, defaults: &Node) {
    let full = Dialect::default().name();
    let Some(template) = defaults.get("upstreams").and_then(|u| u.get(full)).and_then(Node::table) else {
        return;
    };
    let Value::Table(sections) = &mut root.value else {
        return;
    };
    let Some(Node { value: Value::Table(upstreams), .. }) = sections.get_mut("upstreams") else {
        return;
    };
    for upstream in upstreams.values_mut() {
        let path = upstream.key.clone();
        let Value::Table(table) = &mut upstream.value else {
            continue;
        };
        for (name, node) in template.iter().filter(|(name, _)| *name != "base_url" && *name != "dialect") {
            let filled = || Node { key: format!("{path}.{name}"), ..node.clone() };
            table.entry(name.clone()).or_insert_with(filled);
        }
    }
}

fn read_file(path: &Path) -> Result<String, ConfigError> {
    let fault = |message: String| ConfigError::of_source(&path.display().to_string(), message);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => fault("no such file".into()),
        _ => fault(format!("can't be read: {e}")),
    })?;
    file.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(|e| fault(format!("can't be read: {e}")))?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(fault("larger than 1 MiB, expected a config".into()));
    }
    String::from_utf8(bytes).map_err(|e| {
        let line = 1 + memchr::memchr_iter(b'\n', &e.as_bytes()[..e.utf8_error().valid_up_to()]).count();
        ConfigError::of_source(&format!("{}:{line}", path.display()), "not valid UTF-8")
    })
}
