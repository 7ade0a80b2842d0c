// Bias and GELU between the two dense layers of a feed-forward block, in place.
//
// x: (tokens, width) ELEMENT; bias: (width) ELEMENT. The exact GELU of the error function, as ESM-2 was trained with.
// A thread has the same columns in all rows of its block, and their bias in registers.

static __device__ __forceinline__ float gelu(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
}

template <unsigned N, bool WHOLE>
static __device__ __forceinline__ void activate(ELEMENT *x, const ELEMENT *bias, unsigned tokens, unsigned width,
                                                unsigned tokens_per_block) {
    const unsigned column = (blockIdx.y * blockDim.x + threadIdx.x) * N;
    const unsigned present = present_of(N, column, width);
    if (present == 0) {
        return;
    }
    float biases[N];
    load<N, WHOLE>(biases, bias + column, present);
    const unsigned first_token = blockIdx.x * tokens_per_block;
    const unsigned here = present_of(tokens_per_block, first_token, tokens);
    ELEMENT *at = x + static_cast<unsigned long long>(first_token) * width + column;
    for (unsigned row = 0; row < here; ++row, at += width) {
        float values[N];
        load<N, WHOLE>(values, at, present);
#pragma unroll
        for (unsigned i = 0; i < N; ++i) {
            values[i] = gelu(values[i] + biases[i]);
        }
        store<N, WHOLE>(values, at, present);
    }
}

#define BIAS_GELU(name, n, whole)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        name(ELEMENT *x, const ELEMENT *bias, unsigned tokens, unsigned width, unsigned tokens_per_block) {            \
        activate<n, whole>(x, bias, tokens, width, tokens_per_block);                                                  \
    }                                                                                                                  \
    EMULATED(name)

BIAS_GELU(bias_gelu_packets, 16 / sizeof(ELEMENT), true)
BIAS_GELU(bias_gelu_values, 1, false)
