//! Runs kernels on a CPU for tests: compiles the same source as C++ with a header that replaces CUDA.

use std::ffi::c_void;
use std::mem::size_of_val;
use std::path::PathBuf;
use std::sync::OnceLock;

use half::{bf16, f16};
use libloading::Library;

use crate::Dtype;
use crate::compile::definitions;
use crate::kernels::Work;
use crate::launch::Launch;
use crate::source::SOURCE;

#[path = "e4m3.rs"]
pub(crate) mod e4m3;

/// Orders in which the threads of a block run: increasing, decreasing and mixed. Results must not depend on the order.
pub(crate) const ORDERS: [Order; 3] = [Order(1), Order(u32::MAX), Order(77)];

/// The factor of thread numbers that gives their order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order(u32);

/// Exports the kernels' conversions for a test.
const CONVERSIONS: &str = "
    extern \"C\" unsigned short emulator_f16_of_f32(float value) { f16 to; narrow(value, to); return to.bits; }
    extern \"C\" unsigned short emulator_bf16_of_f32(float value) { bf16 to; narrow(value, to); return to.bits; }
    extern \"C\" unsigned char emulator_e4m3_of_f32(float value) { e4m3 to; narrow(value, to); return to.bits; }
    extern \"C\" float emulator_f32_of_f16(unsigned short bits) { return widen(f16{bits}); }
    extern \"C\" float emulator_f32_of_bf16(unsigned short bits) { return widen(bf16{bits}); }
";

/// The kernels for a type of models.
pub(crate) struct Emulator(Library);

/// Compiles the kernels, once for each type.
pub(crate) fn emulator(dtype: Dtype) -> &'static Emulator {
    static ALL: [OnceLock<Emulator>; 5] = [const { OnceLock::new() }; 5];
    ALL[dtype as usize].get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("kernels.cpp");
        let header = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/emulator/cuda.h");
        let text = format!(
            "#include \"{}\"\n{}\n{CONVERSIONS}",
            header.display(),
            SOURCE.to_str().unwrap()
        );
        std::fs::write(&source, text).unwrap();
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let library = folder.path().join("kernels.so");
        let output = cc::Build::new()
            .cpp(true)
            .cargo_metadata(false)
            .opt_level(1)
            .host(&target)
            .target(&target)
            .out_dir(folder.path())
            .get_compiler()
            .to_command()
            // Bytes of one type are read as another, as a GPU does; and no product is merged with a sum on some CPUs
            // only.
            .args([
                "-std=c++17",
                "-shared",
                "-fPIC",
                "-fno-strict-aliasing",
                "-ffp-contract=off",
            ])
            // Without warnings, which depend on the compiler.
            .arg("-w")
            .args(
                definitions(dtype)
                    .iter()
                    .map(|option| option.to_str().unwrap()),
            )
            .arg(&source)
            .arg("-o")
            .arg(&library)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // SAFETY: loading the library runs no code.
        Emulator(unsafe { Library::new(&library).unwrap() })
    })
}

impl Emulator {
    /// Runs a launch to its end.
    pub(crate) fn run(&self, mut launch: Launch, order: Order) {
        type Emulate = unsafe extern "C" fn(u32, u32, u32, u32, *mut *mut c_void) -> bool;
        let name = format!("emulate_{}", launch.kernel.name().to_str().unwrap());
        // SAFETY: every kernel has this signature, and the pointers are those of buffers of the test.
        let done = unsafe {
            let emulate = self.0.get::<Emulate>(name.as_bytes()).unwrap();
            emulate(
                launch.grid.0,
                launch.grid.1,
                launch.threads,
                order.0,
                launch.addresses().as_mut_ptr(),
            )
        };
        assert!(done, "{name}: threads of a block wait for each other");
    }
}

/// Bytes between two margins of NaN that nothing may write to.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Words are aligned to 16 bytes.
    words: Box<[u128]>,
    first: usize,
    len: usize,
}

const MARGIN: usize = 256;

impl Buffer {
    /// So many bytes of 0xff, which is NaN in every type.
    pub(crate) fn empty(len: usize) -> Self {
        Self::shifted(len, 0)
    }

    fn shifted(len: usize, shift: usize) -> Self {
        let words = (MARGIN + shift + len + MARGIN).div_ceil(16);
        Self {
            words: vec![u128::MAX; words].into(),
            first: MARGIN + shift,
            len,
        }
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self::of(bytes, 0)
    }

    /// A copy of values, `shift` bytes behind a multiple of 16.
    pub(crate) fn of<T: Copy>(values: &[T], shift: usize) -> Self {
        let buffer = Self::shifted(size_of_val(values), shift);
        // SAFETY: the buffer has as many bytes as the values.
        unsafe {
            std::ptr::copy_nonoverlapping(
                values.as_ptr().cast::<u8>(),
                buffer.pointer(),
                buffer.len,
            );
        }
        buffer
    }

    /// The same of values rounded to a type.
    pub(crate) fn elements(element: Dtype, values: &[f64], shift: usize) -> Self {
        match element {
            Dtype::F32 => Self::of(&values.iter().map(|&x| x as f32).collect::<Vec<_>>(), shift),
            Dtype::F16 => Self::of(
                &values.iter().map(|&x| f16::from_f64(x)).collect::<Vec<_>>(),
                shift,
            ),
            Dtype::Bf16 => Self::of(
                &values
                    .iter()
                    .map(|&x| bf16::from_f64(x))
                    .collect::<Vec<_>>(),
                shift,
            ),
            Dtype::Int8 | Dtype::Fp8 => unreachable!("no type of elements"),
        }
    }

    pub(crate) fn pointer<T>(&self) -> *mut T {
        self.words
            .as_ptr()
            .cast_mut()
            .cast::<u8>()
            .wrapping_add(self.first)
            .cast()
    }

    /// What it holds now; that its margins are as they were.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let all: Vec<u8> = self
            .words
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let (before, rest) = all.split_at(self.first);
        let (held, behind) = rest.split_at(self.len);
        assert!(
            before.iter().chain(behind).all(|&byte| byte == 0xff),
            "written beside a buffer"
        );
        held.to_vec()
    }

    pub(crate) fn values(&self) -> Vec<f32> {
        self.bytes()
            .as_chunks()
            .0
            .iter()
            .map(|bytes| f32::from_ne_bytes(*bytes))
            .collect()
    }

    pub(crate) fn elements_of(&self, element: Dtype) -> Vec<f64> {
        let halves = || {
            self.bytes()
                .as_chunks()
                .0
                .iter()
                .map(|bytes| u16::from_ne_bytes(*bytes))
                .collect::<Vec<_>>()
        };
        match element {
            Dtype::F32 => self.values().into_iter().map(f64::from).collect(),
            Dtype::F16 => halves()
                .into_iter()
                .map(|bits| f16::from_bits(bits).to_f64())
                .collect(),
            Dtype::Bf16 => halves()
                .into_iter()
                .map(|bits| bf16::from_bits(bits).to_f64())
                .collect(),
            Dtype::Int8 | Dtype::Fp8 => unreachable!("no type of elements"),
        }
    }
}

/// Checks that a value is the expected one, rounded to its type after an error of at most `slack` in f32.
#[track_caller]
pub(crate) fn assert_close(element: Dtype, found: f64, expected: f64, slack: f64) {
    let (half_a_digit, least) = match element {
        Dtype::F32 => (f64::powi(2.0, -24), 0.0),
        Dtype::F16 => (f64::powi(2.0, -11), f64::powi(2.0, -25)),
        Dtype::Bf16 => (f64::powi(2.0, -8), 0.0),
        Dtype::Int8 | Dtype::Fp8 => unreachable!("no type of elements"),
    };
    let allowed = slack + half_a_digit * (expected.abs() + slack) + least;
    assert!(
        (found - expected).abs() <= allowed,
        "{element:?}: expected {expected} within {allowed}, found {found}"
    );
}

/// A change that makes a launch invalid, and the message for it.
pub(crate) type Invalid<T> = (fn(&mut T), &'static str);

/// Numbers that look random (splitmix64), the same in every run.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / f64::powi(2.0, 53)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A warp of which only half waits would hang on a GPU.
#[test]
#[should_panic(expected = "emulate_add_layer_norm_packets: threads of a block wait for each other")]
fn a_block_that_would_hang_is_seen() {
    let held = Buffer::of(&[1f32; 64], 0);
    let work = crate::AddLayerNorm {
        x: held.pointer(),
        y: None,
        weight: held.pointer(),
        bias: held.pointer(),
        out: held.pointer(),
        scales: None,
        tokens: 1,
        hidden: 64,
        eps: 1.0,
        scale: 1.0,
    };
    let mut launch = work.launches(Dtype::F32).unwrap().remove(0);
    launch.threads = 48;
    emulator(Dtype::F32).run(launch, ORDERS[0]);
}

/// f16 is the emulator's conversion; bf16 is the one for Turing. Both must equal the instructions of newer GPUs.
#[test]
fn half_types_are_rounded_as_by_the_crate_half() {
    let emulator = emulator(Dtype::F16);
    // SAFETY: the header declares them so.
    let (to_f16, to_bf16, from_f16, from_bf16) = unsafe {
        (
            emulator
                .0
                .get::<extern "C" fn(f32) -> u16>(b"emulator_f16_of_f32")
                .unwrap(),
            emulator
                .0
                .get::<extern "C" fn(f32) -> u16>(b"emulator_bf16_of_f32")
                .unwrap(),
            emulator
                .0
                .get::<extern "C" fn(u16) -> f32>(b"emulator_f32_of_f16")
                .unwrap(),
            emulator
                .0
                .get::<extern "C" fn(u16) -> f32>(b"emulator_f32_of_bf16")
                .unwrap(),
        )
    };
    for bits in 0..=u16::MAX {
        let (expected, found) = (f16::from_bits(bits), from_f16(bits));
        assert!(
            expected.to_f32().to_bits() == found.to_bits() || expected.is_nan() && found.is_nan()
        );
        // Each value, the next one, and the middle between them and its neighbours, where a tie is decided.
        let next = f16::from_bits(bits.wrapping_add(1)).to_f32();
        let middle = f32::midpoint(found, next);
        for value in [found, middle, middle.next_up(), middle.next_down()] {
            let expected = f16::from_f32(value);
            assert!(
                expected.to_bits() == to_f16(value)
                    || value.is_nan() && f16::from_bits(to_f16(value)).is_nan()
            );
        }
        assert_eq!(from_bf16(bits).to_bits(), u32::from(bits) << 16);
        for below in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
            let value = f32::from_bits(u32::from(bits) << 16 | below);
            let expected = bf16::from_f32(value);
            assert!(
                expected.to_bits() == to_bf16(value)
                    || value.is_nan() && bf16::from_bits(to_bf16(value)).is_nan()
            );
        }
    }
}

/// The emulator's conversion must equal the instruction of newer GPUs: of each f16, and of what lies at and beside the middle of
/// neighbours.
#[test]
fn e4m3_is_rounded_to_the_nearest() {
    // SAFETY: the header declares it so.
    let to_e4m3 = unsafe {
        let name = b"emulator_e4m3_of_f32";
        let emulator = emulator(Dtype::Fp8);
        emulator.0.get::<extern "C" fn(f32) -> u8>(name).unwrap()
    };
    let check = |value: f32| assert_eq!(to_e4m3(value), e4m3::nearest(value), "{value:e}");
    (0..=u16::MAX).for_each(|bits| check(f16::from_bits(bits).to_f32()));
    for bits in 0..0x7e {
        let middle = f32::midpoint(e4m3::value(bits), e4m3::value(bits + 1));
        for value in [middle, middle.next_up(), middle.next_down()] {
            check(value);
            check(-value);
        }
    }
}
