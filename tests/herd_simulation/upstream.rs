//! Model upstreams: what a provider's limit does to the requests that arrive.

use crate::simulation::Dice;

/// Microseconds of the run.
pub type Micros = u64;
pub const MS: Micros = 1_000;
pub const SECOND: Micros = 1_000_000;

/// How a provider counts.
#[derive(Debug, Clone)]
pub enum Limit {
    /// A token bucket. `rates`: from when on, tokens a second.
    Bucket { rates: Vec<(Micros, f64)>, burst: f64, burns: bool },
    /// So many requests in each window of the clock.
    Window { length: Micros, requests: u64 },
    /// None at all.
    None,
}

/// What the provider says with a rejection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Hint {
    None,
    /// The time until the next token, to the millisecond.
    Honest,
    /// The same for everything.
    Always(Micros),
}

/// One upstream.
#[derive(Debug, Clone)]
pub struct Upstream {
    pub limit: Limit,
    pub hint: Hint,
    /// 503 without a hint, from and until.
    pub outages: Vec<(Micros, Micros)>,
    /// The share of requests that fail at random.
    pub failing: f64,
    /// What one request takes of the limit, evenly between these.
    pub cost: (f64, f64),
    /// Tokens, or requests of this window, and as of when.
    pub level: f64,
    pub at: Micros,
}

/// What it does with one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fate {
    Good,
    Limited { hint: Option<Micros> },
    Failed,
}

impl Upstream {
    pub fn new(limit: Limit, hint: Hint) -> Self {
        let level = match &limit {
            Limit::Bucket { burst, .. } => *burst,
            Limit::Window { .. } | Limit::None => 0.0,
        };
        Upstream { limit, hint, outages: Vec::new(), failing: 0.0, cost: (1.0, 1.0), level, at: 0 }
    }

    pub fn arrive(&mut self, now: Micros, dice: &mut Dice) -> Fate {
        let cost = self.cost.0 + (self.cost.1 - self.cost.0) * dice.unit();
        let failing = dice.unit() < self.failing;
        self.fill(now);
        if failing || self.is_out(now) {
            return Fate::Failed;
        }
        self.charge(now, cost)
    }

    fn is_out(&self, now: Micros) -> bool {
        self.outages.iter().any(|(from, until)| (*from..*until).contains(&now))
    }

    /// Bring the level up to now.
    fn fill(&mut self, now: Micros) {
        match &self.limit {
            Limit::Bucket { rates, burst, .. } => {
                for (i, (from, rate)) in rates.iter().enumerate() {
                    let until = rates.get(i + 1).map_or(Micros::MAX, |(next, _)| *next);
                    let time = now.min(until).saturating_sub(self.at.max(*from));
                    self.level = (self.level + rate * time as f64 / SECOND as f64).min(*burst);
                }
            }
            Limit::Window { length, .. } if now / length != self.at / length => self.level = 0.0,
            Limit::Window { .. } | Limit::None => {}
        }
        self.at = now;
    }

    fn charge(&mut self, now: Micros, cost: f64) -> Fate {
        let (fits, burns, wait) = match &self.limit {
            Limit::None => return Fate::Good,
            Limit::Window { length, requests } => {
                let fits = self.level < *requests as f64;
                self.level += f64::from(u8::from(fits));
                (fits, false, length - now % length)
            }
            Limit::Bucket { rates, burns, .. } => {
                // Decimal rounding must not cost a caller that comes exactly in time.
                let fits = self.level + 1e-9 >= cost;
                self.level -= if fits { cost } else { 0.0 };
                let rate = rates.iter().rfind(|(from, _)| *from <= now).map_or(1.0, |(_, rate)| *rate);
                let left = if *burns { 0.0 } else { self.level };
                (fits, *burns, ((cost - left).max(0.0) / rate * SECOND as f64) as Micros)
            }
        };
        if fits {
            return Fate::Good;
        }
        if burns {
            self.level = (self.level - cost).max(0.0);
        }
        let hint = match self.hint {
            Hint::None => None,
            Hint::Honest => Some(wait.div_ceil(MS) * MS),
            Hint::Always(wait) => Some(wait),
        };
        Fate::Limited { hint }
    }

    /// When the last of so many requests is accepted if there are always enough waiting and none is ever sent in vain: the
    /// physical optimum. Found by asking each second millisecond.
    pub fn optimum(&self, requests: u64) -> Micros {
        let mut ideal = Upstream { failing: 0.0, ..self.clone() };
        let mean = f64::midpoint(self.cost.0, self.cost.1);
        let (mut now, mut done) = (0, 0);
        while done < requests {
            ideal.fill(now);
            let open = match &ideal.limit {
                Limit::None => true,
                Limit::Bucket { .. } => ideal.level + 1e-9 >= mean,
                Limit::Window { requests, .. } => ideal.level < *requests as f64,
            };
            if open && !ideal.is_out(now) {
                ideal.charge(now, mean);
                done += 1;
            } else {
                now += 2 * MS;
            }
        }
        now
    }
}
