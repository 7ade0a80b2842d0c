//! Compiles functions for an instruction set.

/// Calls a generic function with the [`Simd`](crate::simd::Simd) of an instruction set, compiled for it.
///
/// `dispatch!(isa, function(a: A, b: B))` calls `function::<S>(a, b)`. `function` must be `#[inline(always)]`.
macro_rules! dispatch {
    ($isa:expr, $function:ident($($name:ident: $kind:ty),* $(,)?)) => {{
        let isa: $crate::Isa = $isa;
        debug_assert!(isa.is_available());
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx512($($name: $kind),*) {
                unsafe { $function::<$crate::simd::Avx512>($($name),*) }
            }
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx2($($name: $kind),*) {
                unsafe { $function::<$crate::simd::Avx2>($($name),*) }
            }
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn amx($($name: $kind),*) {
                unsafe { $function::<$crate::simd::Avx512>($($name),*) }
            }
            match isa {
                $crate::Isa::Portable => unsafe {
                    $function::<$crate::simd::Portable>($($name),*)
                },
                $crate::Isa::Avx2 | $crate::Isa::AvxVnni => unsafe { avx2($($name),*) },
                $crate::Isa::Avx512 | $crate::Isa::Avx512Vnni | $crate::Isa::Avx512Bf16 => unsafe {
                    avx512($($name),*)
                },
                $crate::Isa::Amx => unsafe { amx($($name),*) },
                $crate::Isa::Neon | $crate::Isa::NeonDot | $crate::Isa::NeonMatrix => unreachable!("no such CPU has it"),
            }
        }
        #[cfg(target_arch = "aarch64")]
        match isa {
            // Every such CPU has the instructions.
            $crate::Isa::Neon | $crate::Isa::NeonDot | $crate::Isa::NeonMatrix => unsafe { $function::<$crate::simd::Neon>($($name),*) },
            _ => unsafe { $function::<$crate::simd::Portable>($($name),*) },
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        unsafe { $function::<$crate::simd::Portable>($($name),*) }
    }};
}

/// Defines the operations of a trait of vectors, each inlined into a function that is compiled for its instructions.
macro_rules! operations {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)? { $($body:tt)* })*) => {
        $(
            #[inline(always)]
            #[allow(unused_unsafe)]
            unsafe fn $name($($argument: $kind),*) $(-> $result)? {
                unsafe { $($body)* }
            }
        )*
    };
}

pub(crate) use {dispatch, operations};
