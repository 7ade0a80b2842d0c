use plmkit_kit::{Exit, Failure};

use super::*;

fn open(stream: impl Read + Send + 'static) -> Result<Source, ShardError> {
    Source::new(Path::new("a.fasta"), || Ok(stream), &Stop::default())
}

/// Yields bytes, then an error of the system.
struct Failing(&'static [u8], i32);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::from_raw_os_error(self.1)),
            count => Ok(count),
        }
    }
}

#[test]
fn digest_and_size_are_those_of_the_plain_bytes() {
    let text = b">a\nMKVLAAGIVGLCAKAYLE\n>b\nMK\n";
    let expected = (content_digest(blake3::hash(text)), text.len() as u64);
    let packed = zstd::encode_all(&text[..], 0).expect("memory");
    for stream in [text.to_vec(), packed] {
        let mut source = open(io::Cursor::new(stream)).expect("open");
        let mut start = Vec::new();
        assert!(source.fill(&mut start, 2).expect("read"));
        assert_eq!(start, b">a");
        assert_eq!(source.finish().expect("finish"), expected);
    }
}

#[test]
fn a_failing_disk_is_distinguished_from_a_damaged_stream() {
    const EIO: i32 = 5;
    let fails = |stream| {
        open(stream)
            .and_then(Source::finish)
            .expect_err("it failed")
    };
    let error = fails(Failing(b">a\nMKVLAAGIVGLCAKAYLE\n", EIO));
    assert_eq!(error.exit(), Exit::Io);
    assert_eq!(
        error.to_string(),
        "a.fasta: cannot read: input/output error"
    );
    assert_eq!(fails(Failing(b"", EIO)).exit(), Exit::Io);
    assert_eq!(fails(Failing(b"\x1f\x8b\x08\0", EIO)).exit(), Exit::Io);
}

#[test]
fn an_interrupted_read_is_repeated() {
    struct Interrupted(bool, io::Cursor<Vec<u8>>);
    impl Read for Interrupted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 = !self.0;
            if self.0 {
                Err(io::ErrorKind::Interrupted.into())
            } else {
                self.1.read(&mut buffer[..1])
            }
        }
    }
    let packed = zstd::encode_all(&b">a\nMK\n"[..], 0).expect("memory");
    let source = open(Interrupted(false, io::Cursor::new(packed))).expect("open");
    assert_eq!(source.finish().expect("finish").1, 6);
}

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

fn slow(fails: bool, stop: &Stop) -> Source {
    let bytes = b"MKVLAA";
    let open = move || Ok(Slow { bytes, fails });
    Source::new(Path::new("a.fasta"), open, stop).expect("open")
}

#[test]
fn a_stop_ends_the_wait_for_a_silent_writer() {
    let stop = Stop::default();
    let mut source = slow(false, &stop);
    let mut bytes = Vec::new();
    assert!(source.fill(&mut bytes, 6).expect("six bytes"));
    stop.request();
    let error = source.fill(&mut bytes, 7).expect_err("stopped");
    assert!(matches!(error, ShardError::Store(StoreError::Stopped)));
}

#[test]
fn a_failure_comes_after_the_bytes_before_it() {
    let mut source = slow(true, &Stop::default());
    let mut bytes = Vec::new();
    let error = source.fill(&mut bytes, 7).expect_err("it failed");
    assert_eq!((&bytes[..], error.exit()), (&b"MKVLAA"[..], Exit::Io));
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
    let error = Source::new(Path::new("a.fasta"), never, &stop).err();
    assert!(matches!(
        error,
        Some(ShardError::Store(StoreError::Stopped))
    ));
}

#[test]
fn an_open_error_is_returned_at_once() {
    let open = || Err::<io::Empty, _>(io::Error::from_raw_os_error(13));
    let error = Source::new(Path::new("a.fasta"), open, &Stop::default()).err();
    assert_eq!(error.map(|error| error.exit()), Some(Exit::NoInput));
}
