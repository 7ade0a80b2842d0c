// Bias and GELU between the two dense layers of a feed-forward block, in place.
//
// x: (tokens, width) ELEMENT; bias: (width) ELEMENT. The exact GELU of the error function, as ESM-2 was trained with.
// A thread has the same columns in all rows of its block, and their bias in registers.

// x Phi(x) as max(x, 0) - |x| Phi(-|x|), with -log2 Phi(-|x|) as a polynomial: a minimax fit on 0 to 16, weighted by the
// error that it leaves in x Phi(x), 2e-8 at most. 1 + erf(x) takes more operations than a copy of the values leaves time
// for, and loses the digits of small results: here those of -5 to 0 are within 0.1 %.
static __device__ __forceinline__ float gelu(float x) {
    const float size = fminf(fabsf(x), 16.0f); // from there on Phi(-size) is 0 in f32
    float bits = 1.3967352288091206e-6f;
    bits = fmaf(bits, size, -2.2311733118840493e-5f);
    bits = fmaf(bits, size, 1.0594345076242462e-4f);
    bits = fmaf(bits, size, 3.2829924020916224e-4f);
    bits = fmaf(bits, size, -7.30919698253274e-3f);
    bits = fmaf(bits, size, 5.2661873400211334e-2f);
    bits = fmaf(bits, size, 0.4591561555862427f);
    bits = fmaf(bits, size, 1.1511105298995972f);
    bits = fmaf(bits, size, 1.0f);
    return (x < 0.0f ? 0.0f : x) - size * exp2f(-bits); // the comparison, unlike fmaxf, keeps NaN
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
