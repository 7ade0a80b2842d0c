// What all kernels share: element types, packets of values, sums over a warp.
//
// NVRTC compiles this text with no header at all, since an installed program has none: the two half types are their
// bits, and conversions are PTX instructions. ELEMENT, the type of what the GEMMs read and write, is float,
// f16 or bf16 and given on the command line. Arithmetic is in float throughout; a value is rounded to ELEMENT where
// it is stored.

struct f16 {
    unsigned short bits;
};

struct bf16 {
    unsigned short bits;
};

// The 8-bit float of FP8 products: 4 significant bits, 448 at most, no infinity.
struct e4m3 {
    unsigned char bits;
};

static __device__ __forceinline__ float widen(float value) {
    return value;
}

static __device__ __forceinline__ float widen(bf16 value) {
    return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

static __device__ __forceinline__ void narrow(float value, float &to) {
    to = value;
}

static __device__ __forceinline__ void narrow(float value, bf16 &to) {
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
#else
    // Turing has no such instruction: to the nearest, ties to even, NaN as the instruction has it.
    const unsigned bits = __float_as_uint(value);
    const unsigned rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    to.bits = static_cast<unsigned short>(value != value ? 0x7fffu : rounded);
#endif
}

#ifdef __CUDACC__
static __device__ __forceinline__ float widen(f16 value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
}

static __device__ __forceinline__ void narrow(float value, f16 &to) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
}

#if __CUDA_ARCH__ >= 890
// To the nearest, ties to even, and what is too large to the largest; NaN stays.
static __device__ __forceinline__ void narrow(float value, e4m3 &to) {
    unsigned short two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(value));
    to.bits = static_cast<unsigned char>(two);
}
#endif

// For the CPU, where a test runs each kernel.
#define EMULATED(kernel)
#else
static inline float widen(f16 value) {
    return emulator::f32_of_f16(value.bits);
}

static inline void narrow(float value, f16 &to) {
    to.bits = emulator::f16_of_f32(value);
}

static inline void narrow(float value, e4m3 &to) {
    to.bits = emulator::e4m3_of_f32(value);
}
#endif

template <unsigned BYTES> struct Word;
template <> struct Word<4> {
    typedef unsigned type;
};
template <> struct Word<8> {
    typedef uint2 type;
};
template <> struct Word<16> {
    typedef uint4 type;
};

// N values that are one access of 4, 8 or 16 bytes.
template <typename T, unsigned N> union Packet {
    typename Word<N * sizeof(T)>::type word;
    T values[N];
};

// N values side by side. WHOLE: all are there, and the address is a multiple of their size, so that they are one
// access. Otherwise they are taken one by one, and those from `present` on are 0. Who holds which value is the same
// in both, and with it the order of every sum.
template <unsigned N, bool WHOLE, typename T>
static __device__ __forceinline__ void load(float (&values)[N], const T *from, unsigned present) {
    if constexpr (WHOLE) {
        Packet<T, N> packet;
        packet.word = *reinterpret_cast<const typename Word<N * sizeof(T)>::type *>(from);
#pragma unroll
        for (unsigned i = 0; i < N; ++i) {
            values[i] = widen(packet.values[i]);
        }
    } else {
#pragma unroll
        for (unsigned i = 0; i < N; ++i) {
            values[i] = i < present ? widen(from[i]) : 0.0f;
        }
    }
}

template <unsigned N, bool WHOLE, typename T>
static __device__ __forceinline__ void store(const float (&values)[N], T *to, unsigned present) {
    if constexpr (WHOLE) {
        Packet<T, N> packet;
#pragma unroll
        for (unsigned i = 0; i < N; ++i) {
            narrow(values[i], packet.values[i]);
        }
        *reinterpret_cast<typename Word<N * sizeof(T)>::type *>(to) = packet.word;
    } else {
#pragma unroll
        for (unsigned i = 0; i < N; ++i) {
            if (i < present) {
                narrow(values[i], to[i]);
            }
        }
    }
}

// How many of N values from `first` on lie before `end`.
static __device__ __forceinline__ unsigned present_of(unsigned n, unsigned first, unsigned end) {
    return first >= end ? 0 : (end - first < n ? end - first : n);
}

struct Sum {
    static __device__ __forceinline__ float of(float a, float b) {
        return a + b;
    }
};

struct Largest {
    static __device__ __forceinline__ float of(float a, float b) {
        return fmaxf(a, b);
    }
};

// The sum, or the largest, over the 32 lanes, the same bits in each: at every step two lanes take the same two values.
template <typename OPERATION> static __device__ __forceinline__ float over_warp(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value = OPERATION::of(value, __shfl_xor_sync(0xffffffffu, value, distance));
    }
    return value;
}

// The sequence of a token: the last one that begins at or before it. `starts`: (sequences + 1) offsets, from 0 upwards.
static __device__ __forceinline__ unsigned sequence_of(unsigned token, const int *starts, unsigned sequences) {
    unsigned low = 0;
    unsigned high = sequences;
    while (high - low > 1) {
        const unsigned middle = low + (high - low) / 2;
        if (static_cast<unsigned>(starts[middle]) <= token) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}
