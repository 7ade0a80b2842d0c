//! What the CPU tells of itself.

use std::sync::OnceLock;

/// Whether the CPU is one of Intel.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_intel() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx]
        .map(u32::to_le_bytes)
        .as_flattened()
        == b"GenuineIntel"
}

/// Whether the CPU is one of Intel.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn is_intel() -> bool {
    false
}

/// Returns the bytes of a core's second-level cache, if the CPU tells.
pub(crate) fn level_two_cache() -> Option<usize> {
    static BYTES: OnceLock<Option<usize>> = OnceLock::new();
    *BYTES.get_or_init(ask)
}

/// Source: Intel, Software Developer's Manual, CPUID leaf 4, and AMD, Architecture Programmer's Manual, leaf 8000001D: the same form.
#[cfg(target_arch = "x86_64")]
fn ask() -> Option<usize> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    for leaf in [4, 0x8000_001d] {
        if __cpuid(leaf & 0x8000_0000).eax < leaf {
            continue;
        }
        let caches = (0..16).map(|cache| __cpuid_count(leaf, cache));
        for cache in caches.take_while(|cache| cache.eax & 31 != 0) {
            if cache.eax >> 5 & 7 == 2 {
                let [ways, partitions, line] =
                    [cache.ebx >> 22, cache.ebx >> 12 & 1023, cache.ebx & 4095];
                let sets = cache.ecx as usize + 1;
                let factors = [ways, partitions, line].map(|less_one| less_one as usize + 1);
                return Some(sets * factors.iter().product::<usize>());
            }
        }
    }
    None
}

#[cfg(not(target_arch = "x86_64"))]
fn ask() -> Option<usize> {
    None
}
