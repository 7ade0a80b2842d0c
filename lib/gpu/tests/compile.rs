//! The real compiler, without a GPU: `make kernels` fetches it and runs these.

use plmkit_gpu::{Dtype, GpuError, Kernels, compile};

/// Turing, Ampere, Ada, Hopper and Blackwell, in data centres and not.
const ARCHITECTURES: [u32; 7] = [75, 80, 86, 89, 90, 100, 120];

#[test]
#[ignore = "needs NVRTC: make kernels"]
fn every_kernel_compiles_to_machine_code() {
    for architecture in ARCHITECTURES {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::Fp8] {
            let count = match dtype {
                Dtype::Fp8 if architecture < 89 => continue,
                Dtype::Fp8 => 31,
                _ => 25,
            };
            let image = compile(architecture, dtype).unwrap();
            assert_eq!(&image.code[..4], b"\x7fELF", "{architecture} {dtype:?}");
            let used = resources(&image.log);
            assert_eq!(
                used.len(),
                count,
                "{architecture} {dtype:?}:\n{}",
                image.log
            );
            for (kernel, registers, spilled) in used {
                println!(
                    "{architecture}\t{dtype:?}\t{kernel}\t{registers} registers\t{spilled} bytes spilled"
                );
                assert_eq!(spilled, 0, "{architecture} {dtype:?} {kernel}");
                // 65,536 for a block, which has 1,024 threads at most.
                assert!(
                    registers <= 64,
                    "{architecture} {dtype:?} {kernel}: {registers} registers"
                );
            }
        }
    }
}

/// Registers of a thread and bytes that it spills, of each kernel that `ptxas` has told of.
fn resources(log: &str) -> Vec<(&str, u32, u32)> {
    let number_before = |line: &str, words: &str| -> Option<u32> {
        let (before, _) = line.split_once(words)?;
        before
            .rsplit([' ', ','])
            .find(|word| !word.is_empty())?
            .parse()
            .ok()
    };
    let mut kernel = "";
    let mut spilled = 0;
    let mut all = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            kernel = rest.split('\'').next().unwrap();
        } else if let Some(bytes) = number_before(line, " bytes spill stores") {
            spilled = bytes;
        } else if let Some(registers) = number_before(line, " registers") {
            all.push((kernel, registers, spilled));
        }
    }
    all
}

#[test]
#[ignore = "needs NVRTC: make kernels"]
fn a_device_that_the_compiler_does_not_know_gets_text_for_the_driver() {
    let image = compile(990, Dtype::F16).unwrap();
    let text = std::str::from_utf8(&image.code).unwrap();
    assert!(text.ends_with('\0'));
    assert!(text.contains(".visible .entry rope_packets"));
    assert!(text.contains(".target sm_1"), "{}", &text[..300]);
}

#[test]
#[ignore = "needs NVRTC: make kernels"]
fn a_device_older_than_all_is_refused() {
    assert!(matches!(
        compile(35, Dtype::F32),
        Err(GpuError::Unsupported { .. })
    ));
}

/// There is no such device anywhere; and where there is no driver, there is none at all.
#[test]
fn a_device_that_is_not_there_is_an_error() {
    let error = Kernels::load(usize::MAX, Dtype::F16).unwrap_err();
    assert!(
        matches!(
            error,
            GpuError::NoLibrary { .. } | GpuError::NoSymbol { .. } | GpuError::Driver { .. }
        ),
        "{error}"
    );
    assert!(!error.is_out_of_memory());
}

#[test]
fn without_a_compiler_there_is_an_error() {
    match compile(90, Dtype::F16) {
        Ok(image) => assert!(!image.code.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
