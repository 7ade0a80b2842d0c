//! Reuses memory of large results. The system clears each page of new memory, which costs more than computing the digests of the
//! results.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Smaller buffers come from the allocator, which reuses their memory itself.
const MIN_BYTES: usize = 1 << 20;

/// A pool of buffers for any thread. Free and used buffers together never have more memory than the most that was in use at once.
#[derive(Clone, Debug, Default)]
pub struct Buffers<T> {
    /// Free memory, in the order in which it was returned.
    free: Arc<Mutex<Vec<Vec<T>>>>,
}

/// A buffer of values. Drop returns its memory to the pool.
///
/// ```
/// use plmkit_esm2::{Buffer, Buffers};
///
/// let buffers = Buffers::default();
/// let mut buffer: Buffer<f32> = buffers.take(2);
/// buffer.copy_from_slice(&[1.0, 2.0]);
/// assert_eq!(buffer[..], [1.0, 2.0]);
/// ```
#[derive(Debug)]
pub struct Buffer<T> {
    /// May be longer than the buffer.
    memory: Vec<T>,
    len: usize,
    pool: Option<Buffers<T>>,
}

impl<T: Clone + Default> Buffers<T> {
    /// Returns a buffer of `len` arbitrary values.
    pub fn take(&self, len: usize) -> Buffer<T> {
        if len * size_of::<T>() < MIN_BYTES {
            return vec![T::default(); len].into();
        }
        let found = self.find(len);
        Buffer {
            memory: found.unwrap_or_else(|| vec![T::default(); len + len / 8]),
            len,
            pool: Some(self.clone()),
        }
    }
}

impl<T> Buffers<T> {
    fn free(&self) -> MutexGuard<'_, Vec<Vec<T>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds memory for `len` values, but not for more than twice as many, which larger buffers may need. If there is none, frees as
    /// much as will be allocated.
    fn find(&self, len: usize) -> Option<Vec<T>> {
        let mut free = self.free();
        let sizes = free.iter().map(Vec::len).zip(0..);
        let fitting = sizes.filter(|(size, _)| (len..=2 * len).contains(size));
        if let Some((_, index)) = fitting.min() {
            return Some(free.remove(index));
        }
        let mut freed = 0;
        while freed < len && !free.is_empty() {
            freed += free.remove(0).len();
        }
        None
    }
}

impl<T> Buffer<T> {
    /// Appends values. The buffer leaves the pool.
    pub fn extend_from_slice(&mut self, more: &[T])
    where
        T: Clone,
    {
        let mut values = std::mem::take(&mut self.memory);
        self.pool = None;
        values.truncate(self.len);
        values.extend_from_slice(more);
        *self = values.into();
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.free().push(std::mem::take(&mut self.memory));
        }
    }
}

/// A buffer that does not belong to a pool.
impl<T> From<Vec<T>> for Buffer<T> {
    fn from(memory: Vec<T>) -> Self {
        Self {
            len: memory.len(),
            memory,
            pool: None,
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

impl<T: PartialEq> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = MIN_BYTES;

    fn free(buffers: &Buffers<u8>) -> Vec<usize> {
        buffers.free().iter().map(Vec::len).collect()
    }

    #[test]
    fn returned_memory_is_lent_again_if_it_fits() {
        let buffers = Buffers::<u8>::default();
        let first = buffers.take(MANY);
        let place = first.as_ptr();
        drop(first);
        let again = buffers.take(MANY + MANY / 8);
        assert_eq!((again.as_ptr(), again.len()), (place, MANY + MANY / 8));
        drop(again);
        // A buffer is never more than twice too large, and the pool has no small ones.
        drop(buffers.take(3 * MANY));
        drop(buffers.take(MIN_BYTES - 1));
        assert_eq!(free(&buffers), [3 * MANY + 3 * MANY / 8]);
        assert!(buffers.take(0).is_empty());
    }

    #[test]
    fn a_pool_holds_no_more_than_was_in_use() {
        let buffers = Buffers::<u8>::default();
        let size = |len: usize| len + len / 8;
        drop([buffers.take(MANY), buffers.take(MANY)]);
        assert_eq!(free(&buffers), [size(MANY); 2]);
        let large = buffers.take(3 * MANY);
        assert_eq!(free(&buffers), [0; 0]);
        drop([buffers.take(MANY), large]);
        assert_eq!(free(&buffers), [size(MANY), size(3 * MANY)]);
        let small = buffers.take(MANY);
        drop(small);
        assert_eq!(free(&buffers), [size(3 * MANY), size(MANY)]);
    }

    #[test]
    fn a_buffer_that_grows_leaves_the_pool() {
        let buffers = Buffers::<u8>::default();
        let mut buffer = buffers.take(MANY);
        buffer.fill(7);
        buffer.extend_from_slice(&[8]);
        assert_eq!((buffer.len(), buffer[0], buffer[MANY]), (MANY + 1, 7, 8));
        drop(buffer);
        assert_eq!(free(&buffers), [0; 0]);
    }
}
