//! Memory that is used again. The system hands out pages filled with zeros, one at a time, and takes them back: for large results
//! that costs more than to compute their digests.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Smaller buffers come from the allocator, which keeps memory for such itself.
const LEAST_BYTES: usize = 1 << 20;

/// Hands out buffers and takes them back, in any thread. It never holds more memory, with what is in use, than was once in use.
#[derive(Clone, Debug, Default)]
pub struct Buffers<T> {
    shared: Arc<Mutex<Shared<T>>>,
}

#[derive(Debug)]
struct Shared<T> {
    /// The one that came back first is the first.
    free: Vec<Vec<T>>,
    /// Values in buffers that are in use, and the most that ever were.
    used: usize,
    most: usize,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self {
            free: Vec::new(),
            used: 0,
            most: 0,
        }
    }
}

/// Some values. On drop, the memory goes back to where it came from.
///
/// ```
/// use plmkit_esm2::{Buffer, Buffers};
///
/// let buffers = Buffers::default();
/// let mut buffer: Buffer<f32> = buffers.take(2);
/// buffer.copy_from_slice(&[1.0, 2.0]);
/// assert_eq!(buffer[..], [1.0, 2.0]);
/// ```
pub struct Buffer<T> {
    /// May be longer than the buffer.
    memory: Vec<T>,
    len: usize,
    from: Option<Buffers<T>>,
}

impl<T: Clone + Default> Buffers<T> {
    /// A buffer of `len` values, whatever they are.
    pub fn take(&self, len: usize) -> Buffer<T> {
        if len * size_of::<T>() < LEAST_BYTES {
            return vec![T::default(); len].into();
        }
        let found = self.shared().find(len);
        let memory = found.unwrap_or_else(|| vec![T::default(); len + len / 8]);
        self.shared().lend(memory.len());
        Buffer {
            memory,
            len,
            from: Some(self.clone()),
        }
    }
}

impl<T> Buffers<T> {
    fn shared(&self) -> MutexGuard<'_, Shared<T>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Shared<T> {
    /// Memory for so many values, not for more than twice as many: that would keep it from those who need it.
    fn find(&mut self, len: usize) -> Option<Vec<T>> {
        let fit = |memory: &&(usize, usize)| (len..=2 * len).contains(&memory.0);
        let sizes = self.free.iter().map(Vec::len).zip(0..);
        let sizes: Vec<(usize, usize)> = sizes.collect();
        let (_, place) = sizes.iter().filter(fit).min()?;
        Some(self.free.remove(*place))
    }

    fn lend(&mut self, values: usize) {
        self.used += values;
        self.most = self.most.max(self.used);
        let mut free: usize = self.free.iter().map(Vec::len).sum();
        while self.used + free > self.most {
            free -= self.free.remove(0).len();
        }
    }
}

impl<T> Buffer<T> {
    /// Adds values. A buffer that has grown goes back to the allocator.
    pub fn extend_from_slice(&mut self, more: &[T])
    where
        T: Clone,
    {
        let mut values = std::mem::take(&mut self.memory);
        if let Some(from) = self.from.take() {
            from.shared().used -= values.len();
        }
        values.truncate(self.len);
        values.extend_from_slice(more);
        *self = values.into();
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let Some(from) = self.from.take() {
            let mut shared = from.shared();
            shared.used -= self.memory.len();
            shared.free.push(std::mem::take(&mut self.memory));
        }
    }
}

/// One that goes back to the allocator.
impl<T> From<Vec<T>> for Buffer<T> {
    fn from(memory: Vec<T>) -> Self {
        Self {
            len: memory.len(),
            memory,
            from: None,
        }
    }
}

impl<T> Default for Buffer<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.memory[..self.len]
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[..self.len]
    }
}

impl<T: fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self[..].fmt(to)
    }
}

impl<T: PartialEq> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = LEAST_BYTES;

    fn free(buffers: &Buffers<u8>) -> Vec<usize> {
        buffers.shared().free.iter().map(Vec::len).collect()
    }

    #[test]
    fn what_came_back_is_lent_again_if_it_fits() {
        let buffers = Buffers::<u8>::default();
        let first = buffers.take(MANY);
        let place = first.as_ptr();
        drop(first);
        let again = buffers.take(MANY + MANY / 8);
        assert_eq!((again.as_ptr(), again.len()), (place, MANY + MANY / 8));
        drop(again);
        // Nobody gets twice what he needs, and small ones are the allocator's.
        drop(buffers.take(3 * MANY));
        drop(buffers.take(LEAST_BYTES - 1));
        assert_eq!(free(&buffers), [3 * MANY + 3 * MANY / 8]);
        assert!(buffers.take(0).is_empty());
    }

    #[test]
    fn no_more_is_held_than_was_in_use() {
        let buffers = Buffers::<u8>::default();
        let size = |len: usize| len + len / 8;
        drop([buffers.take(MANY), buffers.take(MANY)]);
        assert_eq!(free(&buffers), [size(MANY); 2]);
        let large = buffers.take(3 * MANY);
        assert_eq!(free(&buffers), [0; 0], "it takes more than both");
        drop([buffers.take(MANY), large]);
        assert_eq!(free(&buffers), [size(MANY), size(3 * MANY)]);
        let small = buffers.take(MANY);
        assert_eq!(buffers.shared().used, size(MANY));
        drop(small);
        assert_eq!(free(&buffers), [size(3 * MANY), size(MANY)]);
    }

    #[test]
    fn one_that_grows_leaves() {
        let buffers = Buffers::<u8>::default();
        let mut buffer = buffers.take(MANY);
        buffer.fill(7);
        buffer.extend_from_slice(&[8]);
        assert_eq!((buffer.len(), buffer[0], buffer[MANY]), (MANY + 1, 7, 8));
        assert_eq!(buffers.shared().used, 0);
        drop(buffer);
        assert_eq!(free(&buffers), [0; 0]);
    }
}
