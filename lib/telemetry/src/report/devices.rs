//! What GPUs can compute at best.

/// Peak rate of one GPU in floating-point operations a second, dense, in the number type `dtype` of a run. `None` for a
/// GPU that is not in the table, and for a type that it has no tensor cores for: a guess would be no MFU.
///
/// `f16` and `bf16` by tensor cores with sums in f32, as matrix products of models are computed; `f32` without TF32, since
/// gpu-embed does not use it. Figures of NVIDIA's data sheets and architecture white papers, boost clock, no sparsity.
pub(super) fn peak_flops_per_s(name: &str, dtype: &str) -> Option<f64> {
    let name = name.trim();
    let name = name.strip_prefix("NVIDIA ").unwrap_or(name);
    let name = name.strip_prefix("Tesla ").unwrap_or(name);
    let (_, f16, f32, has_bf16) = DEVICES.iter().find(|device| device.0.contains(&name))?;
    let tera = match dtype {
        "f16" => f16,
        "bf16" if *has_bf16 => f16,
        "f32" => f32,
        _ => return None,
    };
    Some(tera * 1e12)
}

/// What NVML calls a device, without its maker; its peaks in 1e12 operations a second, of tensor cores in f16 and of f32; whether
/// the tensor cores have bfloat16, at the rate of f16. A part of a GPU (MIG) has a longer name and is none of these.
type Device = (&'static [&'static str], f64, f64, bool);

#[rustfmt::skip]
const DEVICES: &[Device] = &[
    (&["B200"], 2250.0, 75.0, true),
    (&["GB200"], 2500.0, 80.0, true),
    (&["H200", "H100 80GB HBM3", "H100 96GB HBM3", "GH200 120GB", "GH200 480GB", "GH200 144G HBM3e"], 989.4, 66.9, true),
    (&["H200 NVL", "H100 NVL"], 835.5, 60.0, true),
    (&["H100 PCIe"], 756.0, 51.2, true),
    (
        &["A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-40GB", "A100 80GB PCIe", "A100-PCIE-80GB",
          "A800-SXM4-80GB", "A800 80GB PCIe"],
        312.0, 19.5, true,
    ),
    (&["A30"], 165.0, 10.3, true),
    (&["A40"], 149.7, 37.4, true),
    (&["A10"], 125.0, 31.2, true),
    (&["A10G"], 70.0, 35.0, true),
    (&["A2"], 18.0, 4.5, true),
    (&["L40S"], 362.0, 91.6, true),
    (&["L40"], 181.0, 90.5, true),
    (&["L4"], 121.0, 30.3, true),
    (&["RTX 6000 Ada Generation"], 364.2, 91.1, true),
    (&["RTX A6000"], 154.8, 38.7, true),
    (&["RTX A5000"], 111.1, 27.8, true),
    (&["RTX A4000"], 76.7, 19.2, true),
    // Of GeForce half the rate is for sums in f16 only.
    (&["GeForce RTX 5090"], 209.5, 104.8, true),
    (&["GeForce RTX 4090"], 165.2, 82.6, true),
    (&["GeForce RTX 4080"], 97.5, 48.7, true),
    (&["GeForce RTX 3090 Ti"], 80.0, 40.0, true),
    (&["GeForce RTX 3090"], 71.0, 35.6, true),
    (&["GeForce RTX 3080"], 59.5, 29.8, true),
    // Volta and Turing.
    (&["V100-SXM2-16GB", "V100-SXM2-32GB", "V100-SXM3-32GB"], 125.0, 15.7, false),
    (&["V100S-PCIE-32GB"], 130.0, 16.4, false),
    (&["V100-PCIE-16GB", "V100-PCIE-32GB"], 112.0, 14.0, false),
    (&["T4"], 65.0, 8.1, false),
    (&["Quadro RTX 6000", "Quadro RTX 8000"], 130.5, 16.3, false),
    (&["GeForce RTX 2080 Ti"], 53.8, 13.4, false),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_device_is_known_by_the_name_that_the_driver_gives_it() {
        let tera = |name, dtype| peak_flops_per_s(name, dtype).map(|peak| peak / 1e12);
        assert_eq!(tera("NVIDIA H100 80GB HBM3", "bf16"), Some(989.4));
        for like_it in ["NVIDIA GH200 120GB", "NVIDIA H100 96GB HBM3"] {
            assert_eq!(tera(like_it, "bf16"), Some(989.4), "{like_it}");
        }
        assert_eq!(tera("NVIDIA H100 PCIe", "f16"), Some(756.0));
        assert_eq!(tera("NVIDIA A100-SXM4-80GB", "f32"), Some(19.5));
        assert_eq!(tera("NVIDIA GeForce RTX 4090", "f16"), Some(165.2));
        assert_eq!(
            (tera("Tesla T4", "f16"), tera("Tesla T4", "bf16")),
            (Some(65.0), None)
        );
    }

    #[test]
    fn what_is_not_known_has_no_peak() {
        for (name, dtype) in [
            ("Fake, 0", "f16"),
            ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "f16"),
            ("NVIDIA H100 80GB HBM3", "int8"),
            ("", "f32"),
        ] {
            assert_eq!(peak_flops_per_s(name, dtype), None, "{name}, {dtype}");
        }
    }

    #[test]
    fn no_name_is_there_twice() {
        let mut names = HashSet::new();
        for name in DEVICES.iter().flat_map(|device| device.0) {
            assert!(names.insert(name), "{name}");
        }
    }
}
