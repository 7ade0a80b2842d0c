//! Peak rates of GPUs.

/// Returns the dense peak rate of one GPU in floating-point operations a second, for the number type `dtype` of a run.
/// `None` for an unknown GPU, and for a type that its tensor cores do not support: a guess would make MFU meaningless.
///
/// `f16` and `bf16` use tensor cores with sums in f32, as matrix products of models do. `f32` is without TF32, which
/// gpu-embed does not use. `int8` has none, as only some of its products are in int8. The figures are from NVIDIA's data sheets and architecture white papers, at boost clock and
/// without sparsity.
pub fn peak_flops_per_s(name: &str, dtype: &str) -> Option<f64> {
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

/// GPUs that an estimate shows: common ones, from the fastest to the slowest.
pub const DEFAULT_DEVICES: &[&str] = &[
    "B200",
    "H100 80GB HBM3",
    "L40S",
    "A100-SXM4-80GB",
    "GeForce RTX 4090",
    "V100-SXM2-32GB",
    "L4",
    "T4",
];

/// The names of a device in NVML, without the maker; its peaks in 1e12 operations a second, of tensor cores in f16 and of
/// f32; whether its tensor cores have bfloat16, at the rate of f16. A part of a GPU (MIG) has a longer name and matches none.
type Device = (&'static [&'static str], f64, f64, bool);

#[rustfmt::skip]
const DEVICES: &[Device] = &[
    // NVIDIA's table of individual Blackwell GPUs in GB200 NVL72, GB300 NVL72, HGX B200 and HGX B300, halved for no sparsity.
    (&["GB300"], 2500.0, 80.0, true),
    (&["B300 SXM6 AC"], 2250.0, 75.0, true),
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
    // The other editions have lower clocks, and no figures that could be verified.
    (&["RTX PRO 6000 Blackwell Workstation Edition"], 503.8, 126.0, true),
    // GeForce reaches twice the rate with sums in f16, which do not count.
    (&["GeForce RTX 5090"], 209.5, 104.8, true),
    // NVIDIA RTX Blackwell GPU Architecture, as the 5090.
    (&["GeForce RTX 5080"], 112.6, 56.3, true),
    (&["GeForce RTX 5070 Ti"], 87.9, 43.9, true),
    (&["GeForce RTX 5070"], 61.7, 30.9, true),
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
    fn a_device_is_found_by_the_name_that_the_driver_gives() {
        for (name, dtype, expected) in [
            ("NVIDIA H100 80GB HBM3", "bf16", Some(989.4)),
            ("NVIDIA GH200 120GB", "bf16", Some(989.4)),
            ("NVIDIA H100 PCIe", "f16", Some(756.0)),
            ("NVIDIA A100-SXM4-80GB", "f32", Some(19.5)),
            ("NVIDIA GeForce RTX 4090", "f16", Some(165.2)),
            ("NVIDIA GeForce RTX 5080", "bf16", Some(112.6)),
            ("NVIDIA GeForce RTX 5070 Ti", "f32", Some(43.9)),
            ("NVIDIA B300 SXM6 AC", "bf16", Some(2250.0)),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "bf16", None),
            ("Tesla T4", "f16", Some(65.0)),
            ("Tesla T4", "bf16", None),
            ("Fake, 0", "f16", None),
            ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "f16", None),
            ("NVIDIA H100 80GB HBM3", "int8", None),
            ("", "f32", None),
        ] {
            let tera = peak_flops_per_s(name, dtype).map(|peak| peak / 1e12);
            assert_eq!(tera, expected, "{name}, {dtype}");
        }
        let mut names = HashSet::new();
        let duplicate = DEVICES.iter().flat_map(|device| device.0);
        assert_eq!(duplicate.clone().find(|name| !names.insert(**name)), None);
    }
}
