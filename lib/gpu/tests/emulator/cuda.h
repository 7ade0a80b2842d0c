// Stands in for what a CUDA compiler has built in, so that a test can run the kernels on a CPU.
//
// The threads of a block are coroutines of one thread of the CPU. Each runs until it waits at a barrier or a shuffle,
// and goes on when all of its block or warp are there. The order in which they run is the caller's to choose: a
// result that depends on it lacks a barrier. A barrier at which not all arrive ends the launch with an error, where a
// GPU would hang.

#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include <memory>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
};
struct uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct float2 {
    float x, y;
};

namespace emulator {

static inline float f32_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t bits_of_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float f32_of_f16(uint16_t bits) {
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    if (exponent == 31) {
        return fraction ? f32_of_bits(0x7fc00000) : sign * f32_of_bits(0x7f800000);
    }
    return exponent ? sign * ldexpf(1024 + fraction, exponent - 25) : sign * ldexpf(fraction, -24);
}

// The bits of a finite size in a type with so many digits of fraction and this least exponent of a normal number. Rounded to nearest, ties
// to even. A carry goes on into the exponent.
static inline int rounded(float size, int digits, int least_exponent) {
    int exponent = least_exponent;
    if (size >= ldexpf(1.0f, least_exponent)) {
        frexpf(size, &exponent);
        exponent -= 1;
    }
    // The last place of the result is 1; nearbyint is to even in the default mode.
    const int places = static_cast<int>(nearbyintf(ldexpf(size, digits - exponent)));
    return (exponent - least_exponent) * (1 << digits) + places;
}

// A value too large becomes infinite, as with cvt.rn.
static inline uint16_t f16_of_f32(float value) {
    const uint16_t sign = bits_of_f32(value) >> 16 & 0x8000;
    const float size = fabsf(value);
    if (isnan(value)) {
        return 0x7fff;
    }
    return sign | (size >= 65520.0f ? 0x7c00 : static_cast<uint16_t>(rounded(size, 10, -14)));
}

// A value too large becomes the largest, 448, as with cvt.rn.satfinite.
static inline uint8_t e4m3_of_f32(float value) {
    const uint8_t sign = bits_of_f32(value) >> 24 & 0x80;
    if (isnan(value)) {
        return 0x7f;
    }
    return sign | static_cast<uint8_t>(rounded(fminf(fabsf(value), 448.0f), 3, -6));
}

enum State { READY, AT_WARP, AT_BLOCK, DONE };

struct Fiber {
    ucontext_t context;
    dim3 thread;
    State state;
    std::unique_ptr<char[]> stack;
};

static const size_t STACK = 64 * 1024;

struct Block {
    std::vector<Fiber> fibers;
    ucontext_t scheduler;
    Fiber *current;
    dim3 block;
    dim3 block_size;
    uint32_t exchanged[1024];
    void (*body)(void **);
    void **arguments;
};

static thread_local Block running;

static void start() {
    running.body(running.arguments);
    running.current->state = DONE;
    swapcontext(&running.current->context, &running.scheduler);
}

static void wait(State state) {
    Fiber *self = running.current;
    self->state = state;
    swapcontext(&self->context, &running.scheduler);
}

// Lets those of [first, end) go on if all of them wait in `state`.
static bool release(size_t first, size_t end, State state) {
    for (size_t i = first; i < end; ++i) {
        if (running.fibers[i].state != state) {
            return false;
        }
    }
    for (size_t i = first; i < end; ++i) {
        running.fibers[i].state = READY;
    }
    return true;
}

// The i-th of `count` to get its turn: in rising order for a stride of 1, in falling order for one of -1 and mixed up
// for another odd one, which visits each of a power of two once. Those from `count` on are nobody.
static unsigned turn_of(unsigned i, unsigned stride, unsigned slots) {
    return (i * stride + (stride == 1 ? 0 : slots - 1)) % slots;
}

static unsigned slots_of(unsigned count) {
    unsigned slots = 1;
    while (slots < count) {
        slots *= 2;
    }
    return slots;
}

// Runs the threads [first, end) of a warp until each waits for the block, or is done, or for others that do not come.
static void run_warp(unsigned first, unsigned end, unsigned stride) {
    for (;;) {
        bool ran = false;
        for (unsigned i = 0; i < 32; ++i) {
            const unsigned thread = first + turn_of(i, stride, 32);
            if (thread < end && running.fibers[thread].state == READY) {
                running.current = &running.fibers[thread];
                swapcontext(&running.scheduler, &running.current->context);
                ran = true;
            }
        }
        if (!ran && !(first + 32 == end && release(first, end, AT_WARP))) {
            return;
        }
    }
}

// Runs one block. A warp goes on as far as it can before the next has its turn: what it does too early, others see.
static bool run_block(unsigned threads, unsigned stride) {
    if (running.fibers.size() < threads) {
        running.fibers.resize(threads);
    }
    for (unsigned i = 0; i < threads; ++i) {
        Fiber &fiber = running.fibers[i];
        if (!fiber.stack) {
            fiber.stack.reset(new char[STACK]);
        }
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = nullptr;
        fiber.thread = {i, 0, 0};
        fiber.state = READY;
        makecontext(&fiber.context, start, 0);
    }
    const unsigned warps = (threads + 31) / 32;
    const unsigned slots = slots_of(warps);
    do {
        for (unsigned i = 0; i < slots; ++i) {
            const unsigned first = turn_of(i, stride, slots) * 32;
            if (first < threads) {
                run_warp(first, first + 32 < threads ? first + 32 : threads, stride);
            }
        }
    } while (release(0, threads, AT_BLOCK));
    return release(0, threads, DONE);
}

static bool run(dim3 grid, unsigned threads, unsigned stride, void (*body)(void **), void **arguments) {
    running.block_size = {threads, 1, 1};
    running.body = body;
    running.arguments = arguments;
    for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x) {
            running.block = {x, y, 0};
            if (threads > 1024 || !run_block(threads, stride)) {
                return false;
            }
        }
    }
    return true;
}

// A kernel called with the arguments that cuLaunchKernel would get: the address of each.
template <auto KERNEL> struct Call;
template <typename... A, void (*KERNEL)(A...)> struct Call<KERNEL> {
    template <size_t... I> static void unpack(void **arguments, std::index_sequence<I...>) {
        KERNEL(*static_cast<A *>(arguments[I])...);
    }
    static void with(void **arguments) {
        unpack(arguments, std::index_sequence_for<A...>());
    }
};

static inline void sync_threads() {
    wait(AT_BLOCK);
}

static inline float shuffle_xor(float value, int distance) {
    const unsigned thread = running.current->thread.x;
    running.exchanged[thread] = bits_of_f32(value);
    wait(AT_WARP);
    const float other = f32_of_bits(running.exchanged[thread ^ distance]);
    wait(AT_WARP); // nobody may write again before all have read
    return other;
}

} // namespace emulator

#define threadIdx (emulator::running.current->thread)
#define blockIdx (emulator::running.block)
#define blockDim (emulator::running.block_size)

static inline void __syncthreads() {
    emulator::sync_threads();
}

static inline float __shfl_xor_sync(unsigned, float value, int distance) {
    return emulator::shuffle_xor(value, distance);
}

static inline float __uint_as_float(unsigned bits) {
    return emulator::f32_of_bits(bits);
}

static inline unsigned __float_as_uint(float value) {
    return emulator::bits_of_f32(value);
}

#define EMULATED(kernel)                                                                                               \
    extern "C" bool emulate_##kernel(unsigned x, unsigned y, unsigned threads, unsigned stride, void **arguments) {    \
        return emulator::run({x, y, 1}, threads, stride, emulator::Call<kernel>::with, arguments);                     \
    }
