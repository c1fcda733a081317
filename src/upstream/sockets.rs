//! [`Dial`] over TCP: happy eyeballs, an HTTP proxy where the environment names one, and TLS.

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::dial::{Dial, Dialed, Dialing};
use super::tls;
use crate::policy::failure::{Kind, Phase, TransportError};

/// RFC 8305 recommends 250 ms between address families; hyper-util's own default is 300 ms.
const HAPPY_EYEBALLS: Duration = Duration::from_millis(250);

/// Dials over TCP and TLS.
pub struct Sockets {
    tcp: HttpConnector,
    proxy: Option<Arc<Matcher>>,
    tls: TlsSetup,
}

/// TLS settings, built at the first use: reading the platform's roots takes milliseconds that a start need not spend.
type TlsSetup = LazyLock<Result<tls::Configs, String>, Box<dyn FnOnce() -> Result<tls::Configs, String> + Send>>;

impl Sockets {
    /// `ca_file`: PEM roots on top of the platform's. `proxy`: what `HTTPS_PROXY` and `NO_PROXY` say.
    pub fn new(ca_file: Option<&Path>, proxy: Option<Arc<Matcher>>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        tcp.set_happy_eyeballs_timeout(Some(HAPPY_EYEBALLS));
        let ca_file = ca_file.map(Path::to_owned);
        let setup: Box<dyn FnOnce() -> _ + Send> = Box::new(move || tls::configs(ca_file.as_deref()));
        Sockets { tcp, proxy, tls: LazyLock::new(setup) }
    }

    async fn open(&self, target: &Uri, h2: bool) -> Result<Dialed, TransportError> {
        let tcp = match self.proxy_for(target) {
            Some(proxy) => self.through(&proxy, target).await?,
            None => self.direct(target).await?,
        };
        if target.scheme_str() == Some("https") {
            self.secure(tcp, target, h2).await
        } else {
            Ok(Dialed { io: Box::new(tcp), h2: false })
        }
    }

    /// Only https goes through a proxy, and loopback never does, whatever `NO_PROXY` says.
    fn proxy_for(&self, target: &Uri) -> Option<Intercept> {
        let host = target.host().unwrap_or_default();
        if target.scheme_str() != Some("https") || is_loopback(host) {
            return None;
        }
        self.proxy.as_ref()?.intercept(target)
    }

    async fn direct(&self, target: &Uri) -> Result<TcpStream, TransportError> {
        let mut tcp = self.tcp.clone();
        let stream = tcp.call(target.clone()).await.map_err(|error| connect_error(target, &error))?;
        Ok(stream.into_inner())
    }

    async fn through(&self, proxy: &Intercept, target: &Uri) -> Result<TcpStream, TransportError> {
        if proxy.uri().scheme_str() != Some("http") {
            let scheme = proxy.uri().scheme_str().unwrap_or("no");
            let detail =
                format!("the proxy from the environment has the scheme {scheme}; only http:// proxies are supported");
            return Err(refusal(Kind::Refused, detail));
        }
        let mut tunnel = Tunnel::new(proxy.uri().clone(), self.tcp.clone());
        if let Some(auth) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(auth.clone());
        }
        let stream = tunnel.call(target.clone()).await.map_err(|error| {
            let detail =
                format!("the proxy from the environment did not open a tunnel to {}: {}", place(target), chain(&error));
            refusal(Kind::Refused, detail)
        })?;
        Ok(stream.into_inner())
    }

    async fn secure(&self, tcp: TcpStream, target: &Uri, h2: bool) -> Result<Dialed, TransportError> {
        let configs = self.tls.as_ref().map_err(|fault| refusal(Kind::Tls, fault.clone()))?;
        let host = target.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host)
            .map_err(|_| refusal(Kind::Tls, format!("{} is no name that a certificate can hold", place(target))))?;
        let connector = TlsConnector::from(if h2 { configs.h2.clone() } else { configs.h1.clone() });
        let stream = connector.connect(name, tcp).await.map_err(|error| tls_error(target, &error))?;
        let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Dialed { io: Box::new(stream), h2 })
    }
}

impl Dial for Sockets {
    fn dial<'a>(&'a self, target: &'a Uri, h2: bool) -> Dialing<'a> {
        Box::pin(self.open(target, h2))
    }
}

/// The proxies that the environment names (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY` and their lower-case forms).
pub fn proxies_from_env() -> Arc<Matcher> {
    Arc::new(Matcher::from_env())
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// `host:port` for people.
pub fn place(target: &Uri) -> String {
    let port = target.port_u16().unwrap_or(if target.scheme_str() == Some("https") { 443 } else { 80 });
    format!("{}:{port}", target.host().unwrap_or("?"))
}

fn refusal(kind: Kind, detail: String) -> TransportError {
    TransportError { phase: Phase::Connect, kind, sent: false, detail }
}

fn connect_error(target: &Uri, error: &(dyn StdError + 'static)) -> TransportError {
    let text = chain(error);
    let place = place(target);
    if text.contains("dns error") {
        return refusal(Kind::Dns, format!("name resolution failed for {place}: {text}"));
    }
    match io_kind(error) {
        Some(io::ErrorKind::ConnectionRefused) => refusal(Kind::Refused, format!("connection refused by {place}")),
        Some(io::ErrorKind::TimedOut) => refusal(Kind::Timeout, format!("connecting to {place} timed out")),
        _ => refusal(Kind::Refused, format!("could not connect to {place}: {text}")),
    }
}

fn tls_error(target: &Uri, error: &io::Error) -> TransportError {
    let place = place(target);
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(why)) => refusal(
            Kind::Certificate,
            format!(
                "certificate verification failed for {place} ({why:?}); if this is a private CA, set ca_file for the upstream to its PEM file"
            ),
        ),
        _ => refusal(Kind::Tls, format!("the TLS handshake with {place} failed: {}", chain(error))),
    }
}

/// The first I/O error in a chain of causes.
pub fn io_kind(error: &(dyn StdError + 'static)) -> Option<io::ErrorKind> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        cause = error.source();
    }
    None
}

/// An error and its causes in one line.
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
