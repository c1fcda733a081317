//! Bytes held over from one piece of a stream to the next, up to a bound.

/// Room that is kept for the next event; more is given back.
const KEPT: usize = 512;
/// What is kept of bytes that are too many: enough to know what they were.
const STUB: usize = 128;

/// A buffer that stops growing.
#[derive(Debug, Default)]
pub(super) struct Held {
    bytes: Vec<u8>,
    over: bool,
}

impl Held {
    /// Adds bytes. Beyond `max` in all, only the beginning is kept from then on.
    pub fn push(&mut self, more: &[u8], max: usize) {
        if !self.over && more.len() <= max.saturating_sub(self.bytes.len()) {
            return self.bytes.extend_from_slice(more);
        }
        let room = STUB.saturating_sub(self.bytes.len()).min(more.len());
        if !self.over {
            self.over = true;
            self.bytes.truncate(STUB);
            self.bytes.shrink_to(STUB);
        }
        self.bytes.extend_from_slice(&more[..room]);
    }

    /// The bytes; of too many, the beginning.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// There were too many bytes.
    pub fn over(&self) -> bool {
        self.over
    }

    /// Nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.over
    }

    /// Bytes taken on the heap.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Forgets the first bytes.
    pub fn skip(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
    }

    /// Marks the bytes as too many, and forgets them.
    pub fn overflow(&mut self) {
        self.clear();
        self.over = true;
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.over = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stops_growing() {
        let mut held = Held::default();
        held.push(&[1; 300], 300);
        assert_eq!((held.bytes().len(), held.over()), (300, false));
        held.push(&[2], 300);
        assert_eq!((held.bytes(), held.over()), (&[1; STUB][..], true));
        held.push(&[3; 9], 300);
        assert_eq!(held.bytes().len(), STUB);
        held.clear();
        assert!(held.is_empty());
    }

    #[test]
    fn the_beginning_is_the_same_in_any_pieces() {
        for piece in [1, 7, 100, 500] {
            let mut held = Held::default();
            let all: Vec<u8> = (0..=255).cycle().take(500).collect();
            all.chunks(piece).for_each(|c| held.push(c, 50));
            assert!(held.over() && all.starts_with(held.bytes()), "{piece}");
        }
    }
}
