// Matrix products, libcublas and libcublasLt: what libtorch calls of them. Their headers need more of CUDA's than the wheels have;
// enumerations are int here, and handles pointers.
#include "stand_in.h"

#include <cstring>

using namespace stand_in;

namespace {

constexpr int SUCCESS = 0, INVALID_VALUE = 7;

struct Handle {
    void *stream = nullptr;
    std::size_t workspace = 0;
    int math_mode = 0, pointer_mode = 0;
};

// Rows, columns and depth as the library has them, which is by columns.
int product(const char *by, void *stream, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch, const void *out,
            std::size_t workspace) {
    const Lock lock(mutex);
    const int on = number_of(stream);
    if (on < 0) {
        bad("%s on a stream that is none", by);
        return INVALID_VALUE;
    }
    say("gemm %d %lldx%lldx%lld %lld %zu %s", on, static_cast<long long>(m), static_cast<long long>(n), static_cast<long long>(k),
        static_cast<long long>(batch), workspace, by);
    if (place_of(out) != Place::Device) {
        bad("%s writes to memory that is not the device's", by);
        return INVALID_VALUE;
    }
    return SUCCESS;
}

int product(const char *by, const Handle *handle, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch,
            const void *out) {
    return product(by, handle->stream, m, n, k, batch, out, handle->workspace);
}

struct Layout {
    std::uint64_t rows, columns;
};
struct Preference {
    std::uint64_t workspace;
};
struct Heuristic { // cublasLtMatmulHeuristicResult_t
    std::uint64_t algorithm[8];
    std::size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
constexpr int MAX_WORKSPACE_BYTES = 1; // of cublasLtMatmulPreferenceAttributes_t

} // namespace

// ---- libcublas

EXPORT int cublasCreate_v2(Handle **handle) {
    *handle = new Handle;
    return SUCCESS;
}
EXPORT int cublasDestroy_v2(Handle *handle) {
    delete handle;
    return SUCCESS;
}
EXPORT int cublasSetStream_v2(Handle *handle, void *stream) {
    handle->stream = stream;
    return SUCCESS;
}
EXPORT int cublasSetWorkspace_v2(Handle *handle, void *, std::size_t bytes) {
    handle->workspace = bytes;
    return SUCCESS;
}
EXPORT int cublasSetMathMode(Handle *handle, int mode) {
    handle->math_mode = mode;
    return SUCCESS;
}
EXPORT int cublasGetMathMode(Handle *handle, int *mode) {
    *mode = handle->math_mode;
    return SUCCESS;
}
EXPORT int cublasSetPointerMode_v2(Handle *handle, int mode) {
    handle->pointer_mode = mode;
    return SUCCESS;
}
EXPORT int cublasGetPointerMode_v2(Handle *handle, int *mode) {
    *mode = handle->pointer_mode;
    return SUCCESS;
}
EXPORT int cublasSgemm_v2(Handle *handle, int, int, int m, int n, int k, const float *, const float *, int, const float *, int,
                          const float *, float *out, int) {
    return product("cublasSgemm", handle, m, n, k, 1, out);
}
EXPORT int cublasGemmEx(Handle *handle, int, int, int m, int n, int k, const void *, const void *, int, int, const void *, int, int,
                        const void *, void *out, int, int, int, int) {
    return product("cublasGemmEx", handle, m, n, k, 1, out);
}
EXPORT int cublasSgemmStridedBatched(Handle *handle, int, int, int m, int n, int k, const float *, const float *, int, long long,
                                     const float *, int, long long, const float *, float *out, int, long long, int batch) {
    return product("cublasSgemmStridedBatched", handle, m, n, k, batch, out);
}
EXPORT int cublasGemmStridedBatchedEx(Handle *handle, int, int, int m, int n, int k, const void *, const void *, int, int, long long,
                                      const void *, int, int, long long, const void *, void *out, int, int, long long, int batch,
                                      int, int) {
    return product("cublasGemmStridedBatchedEx", handle, m, n, k, batch, out);
}
EXPORT int cublasSgemv_v2(Handle *handle, int, int m, int n, const float *, const float *, int, const float *, int, const float *,
                          float *out, int) {
    return product("cublasSgemv", handle, m, 1, n, 1, out);
}

// ---- libcublasLt

EXPORT std::size_t cublasLtGetVersion() { return 130100; }
EXPORT int cublasLtMatrixLayoutCreate(Layout **layout, int, std::uint64_t rows, std::uint64_t columns, std::int64_t) {
    *layout = new Layout{rows, columns};
    return SUCCESS;
}
EXPORT int cublasLtMatrixLayoutDestroy(Layout *layout) {
    delete layout;
    return SUCCESS;
}
EXPORT int cublasLtMatrixLayoutSetAttribute(Layout *, int, const void *, std::size_t) { return SUCCESS; }
EXPORT int cublasLtMatmulDescCreate(char **description, int, int) {
    *description = new char;
    return SUCCESS;
}
EXPORT int cublasLtMatmulDescDestroy(char *description) {
    delete description;
    return SUCCESS;
}
EXPORT int cublasLtMatmulDescSetAttribute(char *, int, const void *, std::size_t) { return SUCCESS; }
EXPORT int cublasLtMatmulPreferenceCreate(Preference **preference) {
    *preference = new Preference{0};
    return SUCCESS;
}
EXPORT int cublasLtMatmulPreferenceDestroy(Preference *preference) {
    delete preference;
    return SUCCESS;
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *value, std::size_t bytes) {
    if (attribute == MAX_WORKSPACE_BYTES && bytes == sizeof preference->workspace) {
        std::memcpy(&preference->workspace, value, bytes);
    }
    return SUCCESS;
}
// One way for everything, with as much memory as it may take.
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *, char *, Layout *, Layout *, Layout *, Layout *, Preference *preference, int wanted,
                                          Heuristic *results, int *found) {
    if (wanted < 1) {
        return INVALID_VALUE;
    }
    results[0] = {};
    results[0].workspace = preference->workspace;
    *found = 1;
    return SUCCESS;
}
EXPORT int cublasLtMatmul(void *, char *, const void *, const void *, Layout *, const void *, Layout *b, const void *, const void *,
                          Layout *, void *out, Layout *c, const void *, void *, std::size_t workspace, void *stream) {
    return product("cublasLtMatmul", stream, static_cast<std::int64_t>(c->rows), static_cast<std::int64_t>(c->columns),
                   static_cast<std::int64_t>(b->rows), 1, out, workspace);
}
