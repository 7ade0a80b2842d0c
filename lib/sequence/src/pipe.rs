//! Reads from pipes and standard input, where a read may block forever.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use plmkit_contract::Stop;

/// The size of reads.
const CHUNK: usize = 1 << 18;

/// The most chunks that wait. The thread that takes them may be busy for as long as it takes to encode a row group.
const WAITING: usize = 32;

/// The interval of polls for a stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// The bytes of a stream. It ends once a stop is requested, even if its writer is silent.
pub(crate) struct Pipe {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Cursor<Vec<u8>>,
    stop: Stop,
}

impl Pipe {
    /// Opens a stream and reads it in a thread, because opening a FIFO also waits for a writer. The thread ends with the stream
    /// or with the process.
    pub(crate) fn open<R: Read>(
        open: impl FnOnce() -> io::Result<R> + Send + 'static,
        stop: &Stop,
    ) -> io::Result<Self> {
        let (sender, chunks) = sync_channel(WAITING);
        thread::Builder::new().spawn(move || send_all(open, &sender))?;
        let mut pipe = Self {
            chunks,
            chunk: Cursor::default(),
            stop: stop.clone(),
        };
        // The first chunk is empty and means that the stream is open.
        pipe.next()?;
        Ok(pipe)
    }

    /// Waits for the next chunk. Returns false at the end.
    fn next(&mut self) -> io::Result<bool> {
        loop {
            match self.chunks.recv_timeout(PATIENCE) {
                Ok(chunk) => {
                    self.chunk = Cursor::new(chunk?);
                    return Ok(true);
                }
                Err(RecvTimeoutError::Timeout) if !self.stop.requested() => {}
                Err(_) => return Ok(false),
            }
        }
    }
}

fn send_all<R: Read>(
    open: impl FnOnce() -> io::Result<R>,
    sender: &SyncSender<io::Result<Vec<u8>>>,
) {
    let mut stream = match open() {
        Ok(stream) => stream,
        // The receiver may be gone.
        Err(error) => return drop(sender.send(Err(error))),
    };
    if sender.send(Ok(Vec::new())).is_err() {
        return;
    }
    loop {
        let mut chunk = vec![0; CHUNK];
        let read = match stream.read(&mut chunk) {
            Ok(0) => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read,
        };
        let failed = read.is_err();
        let message = read.map(|count| {
            chunk.truncate(count);
            chunk
        });
        if sender.send(message).is_err() || failed {
            return;
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.chunk.read(buffer)?;
            if count > 0 || !self.next()? {
                return Ok(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields one byte at a time, then blocks forever or fails.
    struct Slow {
        bytes: &'static [u8],
        fails: bool,
    }

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.bytes.read(&mut buffer[..1])? {
                0 if self.fails => Err(io::Error::from_raw_os_error(5)),
                0 => loop {
                    thread::park();
                },
                count => Ok(count),
            }
        }
    }

    #[test]
    fn a_stop_ends_the_wait_for_a_silent_writer() {
        let stop = Stop::default();
        let slow = Slow {
            bytes: b"MKV",
            fails: false,
        };
        let mut pipe = Pipe::open(|| Ok(slow), &stop).expect("open");
        let mut bytes = [0; 3];
        pipe.read_exact(&mut bytes).expect("three bytes");
        stop.request();
        assert_eq!(pipe.read(&mut bytes).expect("the end"), 0);
    }

    #[test]
    fn a_failure_comes_after_the_bytes_before_it() {
        let slow = Slow {
            bytes: b"MKV",
            fails: true,
        };
        let mut pipe = Pipe::open(|| Ok(slow), &Stop::default()).expect("open");
        let mut bytes = Vec::new();
        let error = pipe.read_to_end(&mut bytes).expect_err("it failed");
        assert_eq!(
            (bytes.as_slice(), error.raw_os_error()),
            (&b"MKV"[..], Some(5))
        );
    }
    #[test]
    fn a_stop_ends_the_wait_for_a_writer() {
        let stop = Stop::default();
        stop.request();
        let never = || -> io::Result<io::Empty> {
            loop {
                thread::park();
            }
        };
        let mut pipe = Pipe::open(never, &stop).expect("it does not fail");
        assert_eq!(pipe.read(&mut [0]).expect("the end"), 0);
    }

    #[test]
    fn an_open_error_is_returned_at_once() {
        let open = || Err::<io::Empty, _>(io::Error::from_raw_os_error(13));
        let error = Pipe::open(open, &Stop::default()).err();
        assert_eq!(error.and_then(|error| error.raw_os_error()), Some(13));
    }
}
