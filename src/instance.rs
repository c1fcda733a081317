//! Everything that calls share under one config. A reload makes another instance; calls in flight keep theirs.

use std::collections::HashMap;
use std::sync::Arc;

use crate::admission::Admission;
use crate::admission::bucket::RetryBucket;
use crate::admission::memory::Memory;
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::drain::Drain;
use crate::metrics::Metrics;
use crate::route::RouteTable;
use crate::transcript::store::Store;
use crate::transcript::table::Table;
use crate::upstream::Upstream;
use crate::upstream::dial::Dial;

/// What one config made.
pub struct Instance {
    /// The config.
    pub config: Arc<Config>,
    /// Its upstreams, and the rules to choose one.
    pub routes: RouteTable,
    /// The global retry bucket.
    pub bucket: Arc<RetryBucket>,
    /// What outlives a reload.
    pub lasting: Arc<Lasting>,
}

/// What outlives a reload.
pub struct Lasting {
    /// Counters and gauges.
    pub metrics: Arc<Metrics>,
    /// The gates before the upstreams.
    pub admission: Admission,
    /// Calls with a key, in flight and finished.
    pub keyed: Table,
    /// Where their answers are stored for the next process; `None`: nowhere.
    pub store: Option<Store>,
    /// Calls that just ended badly.
    pub memory: Memory,
    /// Clock and dice.
    pub clock: Clock,
    /// Whether Backstop is stopping.
    pub drain: Drain,
    /// Makes the way to an upstream.
    pub dial: Box<DialFor>,
}

/// The way to an upstream: sockets with its TLS settings, or memory in a test.
pub type DialFor = dyn Fn(&config::Upstream) -> Arc<dyn Dial> + Send + Sync;

impl Instance {
    /// Make the upstreams of a config. `before`: the instance that this one replaces; what did not change is kept.
    pub fn new(config: Arc<Config>, lasting: Arc<Lasting>, before: Option<&Instance>) -> Self {
        let upstreams: HashMap<String, Arc<Upstream>> = config
            .upstreams
            .iter()
            .map(|(name, settings)| {
                lasting.metrics.declare(name);
                (name.clone(), Arc::new(Upstream::new(settings.clone(), (lasting.dial)(settings))))
            })
            .collect();
        config.upstreams.values().for_each(|upstream| lasting.admission.apply(upstream));
        // A full bucket after every reload would let a herd through.
        let bucket = before.map(|before| before.bucket.clone()).filter(|bucket| bucket.settings() == config.bucket);
        let bucket = bucket.unwrap_or_else(|| Arc::new(lasting.admission.retry_bucket(config.bucket)));
        Instance { routes: RouteTable::new(&config, upstreams), config, bucket, lasting }
    }
}
