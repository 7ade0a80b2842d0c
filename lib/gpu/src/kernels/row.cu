// A row in the registers of 1, 2, 4, ... 32 warps, 20 values to a thread.

// Of 4 values: 640 to a warp, which is the width of 150M. 1280, 2560 and 5120, the larger ones, fill 2, 4 and 8 warps.
static const unsigned PACKETS = 5;

// The sum, or the largest, over a row: over each warp, then over its warps in their order. The largest is of magnitudes.
template <typename OPERATION>
static __device__ __forceinline__ float over_row(float value, float *of_warps, unsigned first_warp, unsigned warps) {
    value = over_warp<OPERATION>(value);
    if (warps == 1) {
        return value;
    }
    if (threadIdx.x % 32 == 0) {
        of_warps[threadIdx.x / 32] = value;
    }
    __syncthreads();
    float all = 0.0f;
    for (unsigned warp = 0; warp < warps; ++warp) {
        all = OPERATION::of(all, of_warps[first_warp + warp]);
    }
    return all;
}

// The first channel of a packet of a thread, in a row of so many threads.
static __device__ __forceinline__ unsigned channel_of(unsigned packet, unsigned threads) {
    return (packet * threads + threadIdx.x % threads) * 4;
}

// Writes what the threads of a row hold, `width` values or none at all, as e4m3 into row `token` of `out`, so that their largest
// magnitude becomes 448, and the factor that undoes it into `scales`. What a thread holds beside them is 0. `row` is that of the block.
template <bool WHOLE>
static __device__ __forceinline__ void quantise(float (&held)[PACKETS][4], unsigned width, unsigned row, unsigned warps,
                                                unsigned token, e4m3 *out, float *scales) {
    __shared__ float of_warps[32];
    const unsigned threads = 32 * warps;

    float largest = 0.0f;
#pragma unroll
    for (unsigned k = 0; k < PACKETS; ++k) {
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            largest = fmaxf(largest, fabsf(held[k][i]));
        }
    }
    largest = over_row<Largest>(largest, of_warps, row * warps, warps);
    // The factor of smaller values, and of none but 0, would be infinite.
    const bool is_nothing = largest < 0x1p-100f;
    if (width > 0 && threadIdx.x % threads == 0) {
        scales[token] = is_nothing ? 1.0f : largest / 448.0f;
    }
    const float factor = is_nothing ? 1.0f : 448.0f / largest;
    out += static_cast<unsigned long long>(token) * width;
#pragma unroll
    for (unsigned k = 0; k < PACKETS; ++k) {
        const unsigned channel = channel_of(k, threads);
        const unsigned present = present_of(4, channel, width);
        if (present > 0) {
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                held[k][i] *= factor;
            }
            store<4, WHOLE>(held[k], out + channel, present);
        }
    }
}
