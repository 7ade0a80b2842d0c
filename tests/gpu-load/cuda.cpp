// The driver, libcuda: what plmkit's own kernels and libtorch's run-time compiler call of it.
#include "stand_in.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include <cuda.h>

#include "stand_in_calls.h"

using namespace stand_in;

namespace {

thread_local std::vector<CUcontext> contexts;

CUcontext context_of(CUdevice device) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1); }

CUresult in_context(CUresult result = CUDA_SUCCESS) {
    if (contexts.empty()) {
        bad("a call of the driver in no context");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return result;
}

CUresult on(CUdevice device) { return device >= 0 && device < devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }

Function *of(CUfunction function) { return reinterpret_cast<Function *>(function); }

} // namespace

bool attribute_of(int *value, int attribute) {
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return *value = capability() / 10, true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return *value = capability() % 10, true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return *value = 132, true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        return *value = static_cast<int>(SHARED), true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return *value = static_cast<int>(shared_opt_in()), true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return *value = 228 << 10, true;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        return *value = static_cast<int>(THREADS_PER_BLOCK), true;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return *value = 2048, true;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return *value = 32, true;
    default:
        bad("attribute %d of a device, which nobody has implemented", attribute);
        return false;
    }
}

void *driver_function(const char *name) { return dlsym(RTLD_DEFAULT, name); }

CUresult cuGetProcAddress(const char *name, void **function, int, cuuint64_t, CUdriverProcAddressQueryResult *status) {
    *function = driver_function(name);
    if (status) {
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// ---- devices and contexts

CUresult cuInit(unsigned) { return devices() > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }
CUresult cuDriverGetVersion(int *version) {
    *version = VERSION;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    *count = devices();
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return on(ordinal);
}
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    std::snprintf(name, static_cast<std::size_t>(length), "%s", NAME);
    return on(device);
}
// plmkit asks for both versions, the header names the second. They differ on MIG instances only.
#undef cuDeviceGetUuid
EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    *uuid = {};
    uuid->bytes[15] = static_cast<char>(device);
    return on(device);
}
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    return attribute_of(value, attribute) ? on(device) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = context_of(device);
    return on(device);
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return on(device); }
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    *flags = 0, *active = 1;
    return on(device);
}
CUresult cuCtxPushCurrent(CUcontext context) {
    contexts.push_back(context);
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext *context) {
    if (const CUresult result = in_context()) {
        return result;
    }
    if (context) {
        *context = contexts.back();
    }
    contexts.pop_back();
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    // The runtime has made the primary one current.
    *context = contexts.empty() ? context_of(current_device()) : contexts.back();
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    contexts = {context};
    return CUDA_SUCCESS;
}
// What NVIDIA's libraries tell each other. NVRTC asks, and goes on without.
CUresult cuGetExportTable(const void **table, const CUuuid *) {
    *table = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}
CUresult cuGetErrorName(CUresult, const char **name) {
    *name = "CUDA_ERROR";
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char **words) {
    *words = "an error of the stand-in, which has said more";
    return CUDA_SUCCESS;
}

// ---- modules

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    if (std::memcmp(image, "\177ELF", 4) != 0 && std::strncmp(static_cast<const char *>(image), "//", 2) != 0) {
        bad("a module that is neither machine code nor text");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *module = reinterpret_cast<CUmodule>(new char);
    return in_context();
}
CUresult cuModuleUnload(CUmodule module) {
    delete reinterpret_cast<char *>(module);
    return in_context();
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule, const char *name) {
    *function = reinterpret_cast<CUfunction>(new Function{readable(name)}); // for good, as there are few
    return in_context();
}
// CUTLASS describes its matrices so from Hopper on.
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                                const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    *map = {};
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        of(function)->dynamic_shared = static_cast<std::size_t>(value);
    }
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared, CUstream stream, void **, void **) {
    const bool taken = launch(of(function), {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream);
    return in_context(taken ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
