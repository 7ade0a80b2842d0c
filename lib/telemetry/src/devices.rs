//! Peak rates of GPUs.

use std::sync::LazyLock;

use csv::ReaderBuilder;
use plmkit_contract::Dtype;

/// Returns the dense peak rate of one GPU in floating-point operations a second, for the number type `dtype` of a run.
/// `None` for an unknown GPU, and for a type that its tensor cores do not support: a guess would make MFU meaningless.
///
/// `f16` and `bf16` use tensor cores with sums in f32, as matrix products of models do. `f32` is without TF32, which
/// gpu-embed does not use. `int8` and `fp8` have none, as only some of their products are in 8 bits. The figures are from NVIDIA's data sheets and
/// architecture white papers, at boost clock and without sparsity.
pub fn peak_flops_per_s(name: &str, dtype: Dtype) -> Option<f64> {
    let name = name.trim();
    let name = name.strip_prefix("NVIDIA ").unwrap_or(name);
    let name = name.strip_prefix("Tesla ").unwrap_or(name);
    let (_, f16, f32, has_bf16) = DEVICES.iter().find(|device| device.0 == name)?;
    let tera = match dtype {
        Dtype::F16 => f16,
        Dtype::Bf16 if *has_bf16 => f16,
        Dtype::F32 => f32,
        Dtype::Bf16 | Dtype::Int8 | Dtype::Fp8 => return None,
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
    "L4",
    "T4",
];

/// The name of a device in NVML, without the maker; its peaks in 1e12 operations a second, of tensor cores in f16 and of f32; whether
/// its tensor cores have bfloat16, at the rate of f16. A part of a GPU (MIG) has a longer name and matches none.
type Device = (String, f64, f64, bool);

static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
    let table = include_str!("devices.csv").as_bytes();
    let mut table = ReaderBuilder::new().comment(Some(b'#')).from_reader(table);
    table.deserialize().filter_map(Result::ok).collect()
});

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_device_is_found_by_the_name_that_the_driver_gives() {
        for (name, dtype, expected) in [
            ("NVIDIA H100 80GB HBM3", Dtype::Bf16, Some(989.4)),
            ("NVIDIA GH200 120GB", Dtype::Bf16, Some(989.4)),
            ("NVIDIA H100 PCIe", Dtype::F16, Some(756.0)),
            ("NVIDIA A100-SXM4-80GB", Dtype::F32, Some(19.5)),
            ("NVIDIA GeForce RTX 4090", Dtype::F16, Some(165.2)),
            ("NVIDIA GeForce RTX 5080", Dtype::Bf16, Some(112.6)),
            ("NVIDIA GeForce RTX 5070 Ti", Dtype::F32, Some(43.9)),
            ("NVIDIA B300 SXM6 AC", Dtype::Bf16, Some(2250.0)),
            (
                "NVIDIA RTX PRO 6000 Blackwell Server Edition",
                Dtype::Bf16,
                None,
            ),
            ("Tesla T4", Dtype::F16, Some(65.0)),
            ("Tesla T4", Dtype::Bf16, None),
            ("Fake, 0", Dtype::F16, None),
            ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", Dtype::F16, None),
            ("NVIDIA H100 80GB HBM3", Dtype::Int8, None),
            ("NVIDIA H100 80GB HBM3", Dtype::Fp8, None),
            ("", Dtype::F32, None),
        ] {
            let tera = peak_flops_per_s(name, dtype).map(|peak| peak / 1e12);
            assert_eq!(tera, expected, "{name}, {dtype}");
        }
        let names: HashSet<&str> = DEVICES.iter().map(|device| &*device.0).collect();
        assert_eq!((DEVICES.len(), names.len()), (52, 52));
    }
}
