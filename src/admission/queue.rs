//! A fair line: ranks first, within a rank one flow after another in turn, within a flow the call that came first.
//!
//! A flow is one run or one credential, so that a swarm of two hundred gets as many turns as one agent beside it. A higher
//! rank goes first, but every `LOWEST_EVERY`th turn is the lowest rank's, so that none waits for ever. A call that comes
//! back from a failed attempt has its old place, by the time of its arrival. Bound: `admission.queue` entries.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use crate::wire::client::Priority;

/// Every so many turns the lowest rank that waits has one.
const LOWEST_EVERY: u32 = 8;
const RANKS: usize = 3;

/// Who stands where.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// The rank.
    pub priority: Priority,
    /// The flow.
    pub flow: u64,
    /// When the call arrived.
    pub since: Instant,
}

/// The line.
pub struct Queue<T> {
    ranks: [Rank<T>; RANKS],
    len: usize,
    turns: u32,
    entered: u64,
}

struct Rank<T> {
    flows: HashMap<u64, VecDeque<Entry<T>>>,
    /// Whose turn it is.
    turn: VecDeque<u64>,
}

/// One in the line.
pub struct Entry<T> {
    /// Its number.
    pub id: u64,
    /// Its place.
    pub place: Place,
    /// What waits.
    pub item: T,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue { ranks: std::array::from_fn(|_| Rank::default()), len: 0, turns: 0, entered: 0 }
    }
}

impl<T> Default for Rank<T> {
    fn default() -> Self {
        Rank { flows: HashMap::new(), turn: VecDeque::new() }
    }
}

impl<T> Queue<T> {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stand in line; the number to leave it with.
    pub fn push(&mut self, place: Place, item: T) -> u64 {
        self.entered += 1;
        let id = self.entered;
        self.len += 1;
        let rank = &mut self.ranks[place.priority as usize];
        let flow = rank.flow(place.flow, false);
        // Its number is the largest.
        let at = flow.partition_point(|entry| entry.place.since <= place.since);
        flow.insert(at, Entry { id, place, item });
        id
    }

    /// Whoever is next.
    pub fn pop(&mut self) -> Option<Entry<T>> {
        let mut waiting = self.ranks.iter_mut().filter(|rank| !rank.turn.is_empty());
        self.turns = self.turns.wrapping_add(1);
        let rank = if self.turns.is_multiple_of(LOWEST_EVERY) { waiting.next_back() } else { waiting.next() };
        let entry = rank?.pop()?;
        self.len -= 1;
        Some(entry)
    }

    /// Whoever has the least of something; among equals whoever came first.
    pub fn pop_least(&mut self, of: impl Fn(&T) -> u32) -> Option<Entry<T>> {
        let all = self.ranks.iter().flat_map(|rank| rank.flows.values().flatten());
        let least = all.min_by_key(|entry| (of(&entry.item), entry.place.since, entry.id))?;
        let (place, id) = (least.place, least.id);
        self.take(place, id)
    }

    /// Undo a [`Queue::pop`].
    pub fn put_back(&mut self, entry: Entry<T>) {
        self.len += 1;
        self.turns = self.turns.wrapping_sub(1);
        let flow = self.ranks[entry.place.priority as usize].flow(entry.place.flow, true);
        let at = flow.partition_point(|other| (other.place.since, other.id) < (entry.place.since, entry.id));
        flow.insert(at, entry);
    }

    /// Leave the line, wherever one stands. Nothing happens if one does not.
    pub fn take(&mut self, place: Place, id: u64) -> Option<Entry<T>> {
        let rank = &mut self.ranks[place.priority as usize];
        let flow = rank.flows.get_mut(&place.flow)?;
        let first = flow.partition_point(|entry| entry.place.since < place.since);
        let at = (first..flow.len()).find(|at| flow[*at].id == id)?;
        let entry = flow.remove(at);
        self.len -= 1;
        if flow.is_empty() {
            rank.sweep();
        }
        entry
    }

    /// Take everybody out of whom this is true.
    pub fn take_if(&mut self, which: impl Fn(&T) -> bool) -> Vec<T> {
        let mut out = Vec::new();
        for rank in &mut self.ranks {
            for flow in rank.flows.values_mut() {
                let (gone, kept) = std::mem::take(flow).into_iter().partition(|entry| which(&entry.item));
                *flow = kept;
                let gone: VecDeque<_> = gone;
                out.extend(gone.into_iter().map(|entry| entry.item));
            }
            rank.sweep();
        }
        self.len -= out.len();
        out
    }
}

impl<T> Rank<T> {
    /// A flow; one that is new has its turn last, or first.
    fn flow(&mut self, flow: u64, first: bool) -> &mut VecDeque<Entry<T>> {
        let known = self.flows.contains_key(&flow);
        if first {
            if known {
                self.turn.retain(|other| *other != flow);
            }
            self.turn.push_front(flow);
        } else if !known {
            self.turn.push_back(flow);
        }
        self.flows.entry(flow).or_default()
    }

    fn pop(&mut self) -> Option<Entry<T>> {
        let name = self.turn.pop_front()?;
        let flow = self.flows.get_mut(&name)?;
        let entry = flow.pop_front();
        if flow.is_empty() {
            self.flows.remove(&name);
        } else {
            self.turn.push_back(name);
        }
        entry
    }

    /// Forget flows in which nobody stands.
    fn sweep(&mut self) {
        self.flows.retain(|_, flow| !flow.is_empty());
        self.turn.retain(|flow| self.flows.contains_key(flow));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn place(priority: Priority, flow: u64, since: Instant) -> Place {
        Place { priority, flow, since }
    }

    fn drain(queue: &mut Queue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop()).map(|entry| entry.item).collect()
    }

    #[test]
    fn flows_take_turns_and_within_one_the_first_call_goes_first() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        for (flow, since, name) in
            [(1, later, "swarm 2"), (1, later, "swarm 3"), (2, later, "one"), (1, now, "swarm 1, back from a failure")]
        {
            queue.push(place(Priority::Normal, flow, since), name);
        }
        assert_eq!(drain(&mut queue), ["swarm 1, back from a failure", "one", "swarm 2", "swarm 3"]);
    }

    #[test]
    fn ranks_go_first_but_the_lowest_is_not_starved() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.push(place(Priority::Batch, 1, now), "batch");
        for _ in 0..20 {
            queue.push(place(Priority::Interactive, 1, now), "person");
        }
        let order = drain(&mut queue);
        assert_eq!(order.iter().position(|name| *name == "batch"), Some(LOWEST_EVERY as usize - 1));
        assert_eq!(order.len(), 21);
    }

    #[test]
    fn one_that_is_put_back_is_next_and_counts_no_turn() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for (flow, name) in [(1, "a"), (2, "b"), (1, "c")] {
            queue.push(place(Priority::Normal, flow, now), name);
        }
        for _ in 0..100 {
            let first = queue.pop().unwrap();
            assert_eq!(first.item, "a");
            queue.put_back(first);
        }
        assert_eq!((queue.len(), drain(&mut queue)), (3, vec!["a", "b", "c"]));
    }

    #[test]
    fn who_leaves_is_gone_and_leaving_twice_is_nothing() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let here = place(Priority::Normal, 1, now);
        let id = queue.push(here, "leaves");
        queue.push(here, "stays");
        queue.take(here, id);
        queue.take(here, id);
        queue.take(place(Priority::Batch, 9, now), 77);
        assert_eq!((queue.len(), drain(&mut queue)), (1, vec!["stays"]));
        assert!(queue.ranks.iter().all(|rank| rank.flows.is_empty() && rank.turn.is_empty()));
    }

    #[test]
    fn the_least_tried_is_found_wherever_it_stands() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for (priority, tried) in
            [(Priority::Interactive, 4), (Priority::Batch, 1), (Priority::Normal, 1), (Priority::Normal, 0)]
        {
            queue.push(place(priority, 1, now), tried);
        }
        let least = queue.pop_least(|tried| *tried).unwrap();
        queue.put_back(least);
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop_least(|tried| *tried)).map(|entry| entry.item).collect();
        assert_eq!(order, [0, 1, 1, 4]);
        assert!(queue.is_empty() && queue.ranks.iter().all(|rank| rank.turn.is_empty()));
    }

    #[test]
    fn some_are_taken_out() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for (flow, name) in [(1, "new"), (1, "tried"), (2, "new")] {
            queue.push(place(Priority::Normal, flow, now), name);
        }
        assert_eq!(queue.take_if(|name| *name == "new"), ["new", "new"]);
        assert_eq!((queue.len(), drain(&mut queue)), (1, vec!["tried"]));
    }
}
