//! Finished answers in a file, for the next process (`idempotency.durable`).
//!
//! All that can still be given again is read once, at the start: it has to fit into memory all the same
//! (`idempotency.max_bytes`), and no call then waits for a disk. From then on the file is only written, by one thread of its
//! own; an answer is in one transaction, so that it is there whole or not at all, whenever the process is killed.
//!
//! Bounds: `ROOM` bytes of answers wait for that thread, and what finds no room is not stored; the answers in the file are
//! `max_bytes` together, the oldest out first.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use redb::{Builder, Database, ReadableTable, TableDefinition};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::stored::{Row, Stored};
use crate::clock::Clock;

/// The file, in `server.state_dir`.
pub const FILE: &str = "answers.redb";
/// What a file that can't be used is called from then on; only the last of them is kept.
pub const ASIDE: &str = "answers.redb.unreadable";

/// Bytes of answers that wait to be written: four of the largest.
const ROOM: usize = 4 * (super::KEPT + 512 * 1024);
/// The unit in which room is given out.
const KIB: usize = 1024;
/// Bytes of answers that share the wait for the disk, or one that is larger: the file needs room for them before that of what
/// makes way is free.
const BATCH: usize = 4 * 1024 * 1024;
/// redb reads each page once, so a small cache does.
const CACHE: usize = 4 * 1024 * 1024;
/// How often what has expired is looked for while nothing is written.
const TIDY: Duration = Duration::from_secs(60);

/// By age. The name is that of the row's format: another one gets another name.
const ANSWERS: TableDefinition<u64, Row<'static>> = TableDefinition::new("answers-1");

/// What the file may hold.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of all answers.
    pub max_bytes: usize,
    /// No answer is given again for longer.
    pub replay_for: Duration,
}

/// The file, open.
pub struct Store {
    queue: Mutex<Option<Sender<Put>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    room: Arc<Semaphore>,
    told_full: AtomicBool,
}

struct Put {
    answer: Stored,
    now: SystemTime,
    max_bytes: usize,
    /// Given back when it is written.
    _room: OwnedSemaphorePermit,
}

impl Store {
    /// Open the store of a directory, which is made if need be, and read what can still be given again, the oldest first.
    /// `None`: another process has it. A file that can't be read is moved aside.
    ///
    /// # Errors
    /// If there can be no such directory or file.
    pub fn open(dir: &Path, limits: Limits, clock: Clock) -> io::Result<Option<(Store, Vec<Stored>)>> {
        let unusable = |error: io::Error| {
            let message = format!(
                "idempotency.durable: {} (server.state_dir) can't be used: {error}. Let this user write there, name another \
                 directory, or set idempotency.durable = false",
                dir.display()
            );
            io::Error::new(error.kind(), message)
        };
        match open(dir, limits, clock.wall()).map_err(unusable)? {
            Some((keeper, answers)) => Ok(Some((Store::over(keeper, clock)?, answers))),
            None => {
                tracing::warn!(
                    dir = %dir.display(),
                    "another Backstop keeps its answers here: those of this one will not survive a restart (server.state_dir)"
                );
                Ok(None)
            }
        }
    }

    fn over(keeper: Keeper, clock: Clock) -> io::Result<Store> {
        let (queue, puts) = channel();
        let writer = thread::Builder::new().name("answers".into()).spawn(move || keep(keeper, &puts, &clock))?;
        Ok(Store {
            queue: Mutex::new(Some(queue)),
            writer: Mutex::new(Some(writer)),
            room: Arc::new(Semaphore::new(ROOM / KIB)),
            told_full: AtomicBool::new(false),
        })
    }

    /// Store an answer, soon. Never waits.
    pub fn put(&self, answer: Stored, now: SystemTime, max_bytes: usize) {
        let size = u32::try_from(answer.size().div_ceil(KIB)).unwrap_or(u32::MAX);
        let Ok(room) = self.room.clone().try_acquire_many_owned(size) else {
            if !self.told_full.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "the disk is too slow for all answers to survive a restart: some are left out (idempotency.durable)"
                );
            }
            return;
        };
        if let Some(queue) = &*self.queue.lock().unwrap_or_else(PoisonError::into_inner) {
            // A writer that has ended has said why.
            let _ = queue.send(Put { answer, now, max_bytes, _room: room });
        }
    }

    /// Write what waits, and close the file. Blocks.
    pub fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = writer.join();
        }
    }
}

/// The writer's thread.
fn keep(mut keeper: Keeper, puts: &Receiver<Put>, clock: &Clock) {
    loop {
        let first = match puts.recv_timeout(TIDY) {
            Ok(put) => Some(put),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let batch = first.map(|first| batch(first, puts)).unwrap_or_default();
        let (now, max_bytes) =
            batch.last().map_or_else(|| (clock.wall(), keeper.max_bytes), |put| (put.now, put.max_bytes));
        keeper.max_bytes = max_bytes;
        if let Err(error) = keeper.write(&batch, now) {
            tracing::error!(%error, "answers can't be stored any more: they will not survive a restart (server.state_dir)");
            return;
        }
    }
}

/// What waits already goes with the first.
fn batch(first: Put, puts: &Receiver<Put>) -> Vec<Put> {
    let mut size = first.answer.size();
    let mut batch = vec![first];
    while size < BATCH
        && let Ok(put) = puts.try_recv()
    {
        size += put.answer.size();
        batch.push(put);
    }
    batch
}

/// Why a file can't be opened.
enum Unusable {
    /// Another process has it.
    Taken,
    /// It is none of ours, or broken.
    Unreadable(String),
    /// The system says no.
    Io(io::Error),
}

impl<E: Into<redb::Error>> From<E> for Unusable {
    fn from(error: E) -> Self {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        match error.into() {
            redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => Unusable::Taken,
            redb::Error::Io(error) if !matches!(error.kind(), InvalidData | UnexpectedEof) => Unusable::Io(error),
            error => Unusable::Unreadable(error.to_string()),
        }
    }
}

type Opened = (Keeper, Vec<Stored>);

fn open(dir: &Path, limits: Limits, now: SystemTime) -> io::Result<Option<Opened>> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let path = dir.join(FILE);
    let mut opened = attempt(&path, limits, now);
    if let Err(Unusable::Unreadable(why)) = &opened {
        fs::rename(&path, dir.join(ASIDE))?;
        tracing::warn!(%why, "the file of stored answers can't be read: it is {ASIDE} now, and a new one is begun");
        opened = attempt(&path, limits, now);
    }
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Unusable::Taken) => Ok(None),
        Err(Unusable::Io(error)) => Err(error),
        Err(Unusable::Unreadable(why)) => Err(io::Error::other(why)),
    }
}

/// On a thread of its own: what redb takes for granted of a file that it once wrote ends there, if it is not so.
fn attempt(path: &Path, limits: Limits, now: SystemTime) -> Result<Opened, Unusable> {
    let path = path.to_owned();
    let opening = thread::Builder::new().name("answers".into()).spawn(move || Keeper::open(&path, limits, now));
    let panicked = |_| Err(Unusable::Unreadable("its structure makes no sense".to_owned()));
    opening.map_err(Unusable::Io)?.join().unwrap_or_else(panicked)
}

/// The file and what is in it, without the answers themselves.
struct Keeper {
    database: Database,
    lines: VecDeque<Line>,
    size: usize,
    next: u64,
    max_bytes: usize,
}

struct Line {
    number: u64,
    size: usize,
    until: SystemTime,
}

impl Keeper {
    fn open(path: &Path, limits: Limits, now: SystemTime) -> Result<Opened, Unusable> {
        // Made here, so that it is nobody else's from the first byte on.
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map_err(Unusable::Io)?;
        let database = Builder::new().set_cache_size(CACHE).set_check_integrity_on_open(true).create(path)?;
        let max_bytes = limits.max_bytes;
        let mut keeper = Keeper { database, lines: VecDeque::new(), size: 0, next: 0, max_bytes };
        let mut answers = keeper.read(now + limits.replay_for)?;
        let gone = keeper.write(&[], now)?;
        answers.retain(|(number, _)| gone.binary_search(number).is_err());
        Ok((keeper, answers.into_iter().map(|(_, answer)| answer).collect()))
    }

    /// All that is in it. After a clock that was set back, no answer is given again for longer than it would be from now on.
    fn read(&mut self, latest: SystemTime) -> Result<Vec<(u64, Stored)>, redb::Error> {
        let transaction = self.database.begin_write()?;
        let mut answers = Vec::new();
        for row in transaction.open_table(ANSWERS)?.iter()? {
            let (number, row) = row?;
            let Some(mut answer) = Stored::from_row(row.value()) else {
                self.note(number.value(), 0, SystemTime::UNIX_EPOCH);
                continue;
            };
            answer.until = answer.until.min(latest);
            self.note(number.value(), answer.size(), answer.until);
            answers.push((number.value(), answer));
        }
        transaction.commit()?;
        Ok(answers)
    }

    /// Put these in and take out what makes way, in one transaction; the numbers of what went, in order.
    fn write(&mut self, batch: &[Put], now: SystemTime) -> Result<Vec<u64>, redb::Error> {
        if batch.is_empty() && self.size <= self.max_bytes && self.lines.iter().all(|line| line.until > now) {
            return Ok(Vec::new());
        }
        let transaction = self.database.begin_write()?;
        let mut table = transaction.open_table(ANSWERS)?;
        for Put { answer, .. } in batch {
            let number = self.next;
            self.note(number, answer.size(), answer.until);
            answer.with_row(|row| table.insert(number, row).map(drop))?;
        }
        let gone = self.make_way(now);
        for number in &gone {
            table.remove(number)?;
        }
        drop(table);
        transaction.commit()?;
        Ok(gone)
    }

    fn note(&mut self, number: u64, size: usize, until: SystemTime) {
        self.lines.push_back(Line { number, size, until });
        self.size += size;
        self.next = number.saturating_add(1);
    }

    /// Take out of the books what has expired, and the oldest until the rest has room.
    fn make_way(&mut self, now: SystemTime) -> Vec<u64> {
        let mut gone = Vec::new();
        let mut left = self.size;
        self.lines.retain(|line| {
            let stays = line.until > now;
            if !stays {
                left -= line.size;
                gone.push(line.number);
            }
            stays
        });
        while left > self.max_bytes
            && let Some(line) = self.lines.pop_front()
        {
            left -= line.size;
            gone.push(line.number);
        }
        self.size = left;
        gone.sort_unstable();
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::memory::Fingerprint;

    const BOUND: usize = 8 << 20;

    fn put(n: usize, now: SystemTime) -> Put {
        // Of all sizes up to 1 MiB, in no order.
        let size = n.wrapping_mul(2_654_435_761) % (1 << 20);
        let answer = Stored::sized(Fingerprint::of([&n.to_le_bytes()[..]]), size, now + Duration::from_secs(60));
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Put { answer, now, max_bytes: BOUND, _room: room }
    }

    #[test]
    fn the_file_stays_within_a_few_times_the_bound_however_much_goes_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let limits = Limits { max_bytes: BOUND, replay_for: Duration::from_secs(60) };
        let (mut keeper, _) = open(dir.path(), limits, now).ok().flatten().unwrap();
        let (queue, puts) = channel();
        for n in 0..120 {
            queue.send(put(n, now)).unwrap();
        }
        drop(queue);
        let mut batches = 0;
        while let Ok(first) = puts.recv() {
            keeper.write(&batch(first, &puts), now).unwrap();
            batches += 1;
        }
        let size = fs::metadata(dir.path().join(FILE)).unwrap().len();
        assert!(keeper.size <= BOUND && keeper.size > BOUND / 2 && batches > 10, "{} {batches}", keeper.size);
        assert!(size <= 4 * BOUND as u64, "{size}");
    }
}
