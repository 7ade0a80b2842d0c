// One vector for each sequence from the vectors of its tokens.
//
// hidden: (tokens, width) f32; starts: (sequences + 1), where each sequence begins; out: (sequences, width) f32.
// Residues are the tokens of a sequence but its first and its last.
//
// A sequence is cut into chunks of CHUNK residues, counted from its own first one. One kernel reduces each chunk, a
// second one the chunks of each sequence, both in the same way: eight warps take every eighth row, and their eight
// values are joined as a tree. That is one fixed tree for each number of residues, whatever lies around the sequence.
//
// parts: (tokens / CHUNK + sequences, width) f32. Sequence i has the rows from starts[i] / CHUNK + i on: there are
// enough before those of i + 1 for every chunk that it can have, and no table of chunks is needed.

static const unsigned CHUNK = 128;
static const unsigned WARPS = 8;

enum Reduction { MEAN, LARGEST, DEVIATION };

template <Reduction R> static __device__ __forceinline__ float join(float a, float b) {
    if (R == LARGEST) {
        return b > a || b != b ? b : a; // NaN stays; fmaxf would drop it
    }
    return a + b;
}

template <Reduction R> static __device__ __forceinline__ float nothing() {
    return R == LARGEST ? __uint_as_float(0xff800000u) : 0.0f;
}

struct Residues {
    unsigned first; // token
    unsigned count;
};

static __device__ __forceinline__ Residues residues_of(const int *starts, unsigned sequence) {
    const int start = starts[sequence];
    const int tokens = starts[sequence + 1] - start;
    Residues residues;
    residues.first = static_cast<unsigned>(start) + 1;
    residues.count = tokens > 2 ? static_cast<unsigned>(tokens) - 2 : 0;
    return residues;
}

static __device__ __forceinline__ unsigned first_part_of(const int *starts, unsigned sequence) {
    return static_cast<unsigned>(starts[sequence]) / CHUNK + sequence;
}

// Reduces `count` rows in four columns from `column` on. What comes out is in the first warp. With SQUARED, it is the
// squares of the deviations from `mean`.
template <Reduction R, bool SQUARED, bool WHOLE>
static __device__ __forceinline__ void reduce(float (&total)[4], const float *rows, unsigned count, unsigned width,
                                              unsigned column, const float *mean) {
    __shared__ float of_warps[WARPS][128];
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    const unsigned present = present_of(4, column, width);
    float means[4];
    if (SQUARED && present > 0) {
        load<4, WHOLE>(means, mean + column, present);
    }
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
        total[i] = nothing<R>();
    }
    if (present > 0) {
#pragma unroll 4
        for (unsigned row = warp; row < count; row += WARPS) {
            float values[4];
            load<4, WHOLE>(values, rows + static_cast<unsigned long long>(row) * width + column, present);
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                if (SQUARED) {
                    values[i] -= means[i];
                    values[i] *= values[i];
                }
                total[i] = join<R>(total[i], values[i]);
            }
        }
    }
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
        of_warps[warp][lane * 4 + i] = total[i];
    }
    __syncthreads();
    if (warp == 0) {
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            float part[WARPS];
#pragma unroll
            for (unsigned w = 0; w < WARPS; ++w) {
                part[w] = of_warps[w][lane * 4 + i];
            }
#pragma unroll
            for (unsigned half = WARPS / 2; half > 0; half /= 2) {
#pragma unroll
                for (unsigned w = 0; w < half; ++w) {
                    part[w] = join<R>(part[w], part[w + half]);
                }
            }
            total[i] = part[0];
        }
    }
}

// One block for a chunk and 128 columns. `out` has the means already where R is DEVIATION.
template <Reduction R, bool WHOLE>
static __device__ __forceinline__ void reduce_chunk(const float *hidden, const int *starts, float *parts,
                                                    const float *out, unsigned sequences, unsigned width) {
    const unsigned part = blockIdx.x;
    unsigned low = 0;
    unsigned high = sequences;
    while (high - low > 1) {
        const unsigned middle = low + (high - low) / 2;
        if (first_part_of(starts, middle) <= part) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const Residues residues = residues_of(starts, low);
    const unsigned before = (part - first_part_of(starts, low)) * CHUNK;
    if (before >= residues.count) {
        return; // the whole block: this part belongs to no chunk
    }
    const unsigned column = blockIdx.y * 128 + threadIdx.x % 32 * 4;
    const unsigned long long first = residues.first + before;
    float total[4];
    reduce<R, R == DEVIATION, WHOLE>(total, hidden + first * width, present_of(CHUNK, before, residues.count), width,
                                     column, out + static_cast<unsigned long long>(low) * width);
    const unsigned present = present_of(4, column, width);
    if (threadIdx.x < 32 && present > 0) {
        store<4, WHOLE>(total, parts + static_cast<unsigned long long>(part) * width + column, present);
    }
}

// One block for a sequence and 128 columns.
template <Reduction R, bool WHOLE>
static __device__ __forceinline__ void reduce_sequence(const int *starts, const float *parts, float *out,
                                                       unsigned width) {
    const unsigned sequence = blockIdx.x;
    const unsigned count = residues_of(starts, sequence).count;
    const unsigned column = blockIdx.y * 128 + threadIdx.x % 32 * 4;
    const unsigned long long first = first_part_of(starts, sequence);
    float total[4];
    reduce<R, false, WHOLE>(total, parts + first * width, (count + CHUNK - 1) / CHUNK, width, column, 0);
    const unsigned present = present_of(4, column, width);
    if (threadIdx.x < 32 && present > 0) {
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            if (R == LARGEST) {
                total[i] = count > 0 ? total[i] : __uint_as_float(0x7fc00000u);
            } else {
                total[i] /= static_cast<float>(count); // 0/0 is NaN
            }
            if (R == DEVIATION) {
                total[i] = sqrtf(total[i]);
            }
        }
        store<4, WHOLE>(total, out + static_cast<unsigned long long>(sequence) * width + column, present);
    }
}

#define POOL(reduction, name, suffix, whole)                                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        pool_chunks_##name##_##suffix(const float *hidden, const int *starts, float *parts, const float *out,          \
                                      unsigned sequences, unsigned width) {                                            \
        reduce_chunk<reduction, whole>(hidden, starts, parts, out, sequences, width);                                  \
    }                                                                                                                  \
    EMULATED(pool_chunks_##name##_##suffix)                                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        pool_sequences_##name##_##suffix(const int *starts, const float *parts, float *out, unsigned width) {          \
        reduce_sequence<reduction, whole>(starts, parts, out, width);                                                  \
    }                                                                                                                  \
    EMULATED(pool_sequences_##name##_##suffix)

POOL(MEAN, mean, packets, true)
POOL(MEAN, mean, values, false)
POOL(LARGEST, max, packets, true)
POOL(LARGEST, max, values, false)
POOL(DEVIATION, std, packets, true)
POOL(DEVIATION, std, values, false)

// The vector of the first token of each sequence.
extern "C" __global__ void __launch_bounds__(256)
    pool_bos(const float *hidden, const int *starts, float *out, unsigned width) {
    const unsigned sequence = blockIdx.x;
    const float *from = hidden + static_cast<unsigned long long>(starts[sequence]) * width;
    float *to = out + static_cast<unsigned long long>(sequence) * width;
    for (unsigned channel = threadIdx.x; channel < width; channel += blockDim.x) {
        to[channel] = from[channel];
    }
}
EMULATED(pool_bos)
