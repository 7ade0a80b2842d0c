// The runtime, libcudart: what libtorch calls of it.
#include "stand_in.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include <cuda_runtime_api.h>

#include "stand_in_calls.h"

using namespace stand_in;

namespace {

thread_local cudaError_t last = cudaSuccess;

cudaError_t ended(cudaError_t error) {
    if (error != cudaSuccess) {
        last = error;
    }
    return error;
}

cudaError_t good(bool whether, cudaError_t otherwise) { return ended(whether ? cudaSuccess : otherwise); }

// Kernels by the address of their host function. Tens of thousands are registered as libtorch is loaded: names are made readable
// when one is used.
struct Registered {
    const char *mangled;
    Function function;
};
std::unordered_map<const void *, Registered> kernels;

Function *function_of(const void *host) {
    const Lock lock(mutex);
    const auto found = kernels.find(host);
    if (found == kernels.end()) {
        return nullptr;
    }
    Function &function = found->second.function;
    if (function.name.empty()) {
        function.name = readable(found->second.mangled);
    }
    return &function;
}

Event *of(cudaEvent_t event) { return reinterpret_cast<Event *>(event); }

struct Call {
    dim3 grid, block;
    std::size_t shared;
    void *stream;
};
thread_local Call call;

cudaError_t launched(const Function *function, dim3 grid, dim3 block, std::size_t shared, void *stream) {
    const bool taken = launch(function, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, stream);
    return good(taken, cudaErrorInvalidConfiguration);
}

} // namespace

// ---- kernels

EXPORT void **__cudaRegisterFatBinary(void *) {
    static void *handle = nullptr;
    return &handle;
}
EXPORT void __cudaRegisterFatBinaryEnd(void **) {}
EXPORT void __cudaUnregisterFatBinary(void **) {}
EXPORT char __cudaInitModule(void **) { return 1; }
EXPORT void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, void *, void *, void *, void *, int *) {
    const Lock lock(mutex);
    kernels[host] = {name, {}};
}
EXPORT void __cudaRegisterVar(void **, char *, char *, const char *, int, std::size_t, int, int) {}
EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void *stream) {
    call = {grid, block, shared, stream};
    return 0;
}
EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, std::size_t *shared, void **stream) {
    *grid = call.grid, *block = call.block, *shared = call.shared, *stream = call.stream;
    return cudaSuccess;
}
EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    *kernel = reinterpret_cast<cudaKernel_t>(function_of(host));
    return good(*kernel != nullptr, cudaErrorInvalidDeviceFunction);
}
EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **, std::size_t shared, cudaStream_t stream) {
    return launched(reinterpret_cast<const Function *>(kernel), grid, block, shared, stream);
}
cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **, std::size_t shared, cudaStream_t stream) {
    return launched(function_of(host), grid, block, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host, void **) {
    return launched(function_of(host), config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream);
}
cudaError_t cudaFuncSetAttribute(const void *host, cudaFuncAttribute attribute, int value) {
    Function *function = function_of(host);
    if (!function) {
        return ended(cudaErrorInvalidDeviceFunction);
    }
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (static_cast<std::size_t>(value) > shared_opt_in()) {
            bad("%s: %d bytes of shared memory are asked for, of %zu", function->name.c_str(), value, shared_opt_in());
            return ended(cudaErrorInvalidValue);
        }
        function->dynamic_shared = std::max(SHARED, static_cast<std::size_t>(value));
    }
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *host) {
    const Function *function = function_of(host);
    if (!function) {
        return ended(cudaErrorInvalidDeviceFunction);
    }
    *attributes = {};
    attributes->maxThreadsPerBlock = THREADS_PER_BLOCK;
    attributes->numRegs = 64;
    attributes->ptxVersion = attributes->binaryVersion = capability();
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(function->dynamic_shared);
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *, int, size_t, unsigned) {
    *blocks = 2;
    return cudaSuccess;
}

// ---- devices

cudaError_t cudaGetDeviceCount(int *count) {
    *count = devices();
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
    *device = current_device();
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= devices()) {
        return ended(cudaErrorInvalidDevice);
    }
    current_device() = device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
    if (device < 0 || device >= devices()) {
        return ended(cudaErrorInvalidDevice);
    }
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "%s", NAME);
    properties->uuid.bytes[15] = static_cast<char>(device);
    properties->totalGlobalMem = memory();
    properties->major = capability() / 10, properties->minor = capability() % 10;
    properties->multiProcessorCount = 132;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = THREADS_PER_BLOCK;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->maxBlocksPerMultiProcessor = 32;
    const int block[] = {1024, 1024, 64}, grid[] = {0x7fffffff, 0xffff, 0xffff};
    std::memcpy(properties->maxThreadsDim, block, sizeof block);
    std::memcpy(properties->maxGridSize, grid, sizeof grid);
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->sharedMemPerBlock = SHARED;
    properties->sharedMemPerBlockOptin = shared_opt_in();
    properties->sharedMemPerMultiprocessor = 228 << 10;
    properties->l2CacheSize = 50 << 20;
    properties->memoryBusWidth = 5120;
    properties->textureAlignment = 512;
    properties->unifiedAddressing = properties->canMapHostMemory = properties->concurrentKernels = 1;
    properties->asyncEngineCount = 3;
    properties->pciBusID = device + 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    return good(attribute_of(value, attribute), cudaErrorInvalidValue);
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device) {
    std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *whether, int, int) {
    *whether = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0, *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
    *version = VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceSynchronize() {
    say("sync device");
    reach_all();
    return cudaSuccess;
}
cudaError_t cudaGetLastError() {
    const cudaError_t error = last;
    last = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError() { return last; }
const char *cudaGetErrorName(cudaError_t error) {
    return error == cudaSuccess ? "cudaSuccess" : error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError";
}
const char *cudaGetErrorString(cudaError_t error) {
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    default:
        return "an error of the stand-in, which has said more";
    }
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result) {
    *function = driver_function(name);
    if (result) {
        *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
}
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

// ---- memory

cudaError_t cudaMalloc(void **pointer, size_t bytes) {
    *pointer = nullptr;
    if (bytes == 0) {
        return cudaSuccess; // as CUDA's own runtime
    }
    *pointer = take(bytes);
    return good(*pointer != nullptr, cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void *pointer) {
    if (!pointer) {
        return cudaSuccess; // how a program begins to use a device
    }
    reach_all(); // a device has done all that it was told before it lets go of memory
    return good(give_back(pointer), cudaErrorInvalidValue);
}
cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned) {
    *pointer = take_pinned(bytes);
    return good(*pointer != nullptr, cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void *pointer) {
    reach_all();
    return good(give_back_pinned(pointer), cudaErrorInvalidValue);
}
cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
    *left = memory_left(), *total = memory();
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer) {
    *attributes = {};
    attributes->device = current_device();
    switch (place_of(pointer)) {
    case Place::Device:
        attributes->type = cudaMemoryTypeDevice;
        attributes->devicePointer = const_cast<void *>(pointer);
        break;
    case Place::Pinned:
        attributes->type = cudaMemoryTypeHost;
        attributes->devicePointer = attributes->hostPointer = const_cast<void *>(pointer);
        break;
    case Place::Elsewhere:
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->hostPointer = const_cast<void *>(pointer);
    }
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    return good(copy(to, from, bytes, false, nullptr), cudaErrorInvalidValue);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    return good(copy(to, from, bytes, true, stream), cudaErrorInvalidValue);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind, cudaStream_t stream) {
    for (size_t row = 0; row < height; ++row) {
        const bool done = copy(static_cast<char *>(to) + row * to_pitch, static_cast<const char *>(from) + row * from_pitch, width,
                               true, stream);
        if (!done) {
            return ended(cudaErrorInvalidValue);
        }
    }
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream) {
    say("set %d %zu", number_of(stream), bytes);
    std::memset(pointer, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemset(void *pointer, int value, size_t bytes) { return cudaMemsetAsync(pointer, value, bytes, nullptr); }

// ---- streams and events

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) {
    *stream = static_cast<cudaStream_t>(new_stream());
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return good(end_stream(stream), cudaErrorInvalidResourceHandle); }
cudaError_t cudaStreamGetPriority(cudaStream_t, int *priority) {
    *priority = 0;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    say("sync stream %d", number_of(stream));
    reach_stream(stream);
    return good(number_of(stream) >= 0, cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    reach_stream(stream);
    return good(number_of(stream) >= 0, cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (number_of(stream) < 0) {
        bad("a stream that is none waits for an event");
        return ended(cudaErrorInvalidResourceHandle);
    }
    wait(stream, of(event));
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus *status, unsigned long long *, cudaGraph_t *,
                                     const cudaGraphNode_t **, const cudaGraphEdgeData **, size_t *) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    static std::atomic<int> made{0};
    *event = reinterpret_cast<cudaEvent_t>(new Event{++made});
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete of(event);
    return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
    if (number_of(stream) < 0) {
        bad("an event is recorded on a stream that is none");
        return ended(cudaErrorInvalidResourceHandle);
    }
    record(of(event), stream);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaEventRecordWithFlags(event, stream, 0); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    say("sync event %d", of(event)->number);
    reach(of(event));
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    reach(of(event));
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    *ms = static_cast<float>(of(to)->ms - of(from)->ms);
    return good(of(from)->stream >= 0 && of(to)->stream >= 0, cudaErrorInvalidResourceHandle);
}
