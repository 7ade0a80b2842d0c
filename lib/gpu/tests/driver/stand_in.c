// The functions of the CUDA driver that the crate calls. They do nothing, and write down that they were called.
//
// A launch is: kernel, grid, block, shared memory, stream, and what each argument holds; how many those are and of how
// many bytes is in a table here, so that none is read that was not given.

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_FOUND = 500 };

static char text[2][65536];
static int current;
static int depth; // of the stack of contexts
static int functions;
static int launches_return;
static char names[64][64];

static void say(const char *format, ...) {
    va_list values;
    va_start(values, format);
    size_t used = strlen(text[current]);
    vsnprintf(text[current] + used, sizeof text[current] - used, format, values);
    va_end(values);
}

const char *stand_in_said(void) {
    current = !current;
    text[current][0] = 0;
    return text[!current];
}

void stand_in_fail_launches(int code) {
    launches_return = code;
}

int cuInit(unsigned flags) {
    say("cuInit\n");
    return flags;
}

// NVRTC asks the driver for tables that no header declares.
int cuGetExportTable(const void **table, const void *id) {
    (void)id;
    *table = NULL;
    return NOT_FOUND;
}

int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

int cuDeviceGetName(char *name, int size, int device) {
    snprintf(name, size, "GPU %d", device);
    return 0;
}

int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = 7;
    return ordinal == 0 ? 0 : INVALID_DEVICE;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 9 : 0; // compute capability 9.0: 75 is its major, 76 its minor number
    return device == 7 ? 0 : INVALID_DEVICE;
}

int cuDeviceGetUuid(char *uuid, int device) {
    memset(uuid, 1, 16);
    return device == 7 ? 0 : INVALID_DEVICE;
}

int cuDeviceGetUuid_v2(char *uuid, int device) {
    return cuDeviceGetUuid(uuid, device);
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    say("retain\n");
    *context = (void *)0xc0;
    return device == 7 ? 0 : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    say("release\n");
    return device == 7 ? 0 : INVALID_DEVICE;
}

int cuCtxPushCurrent_v2(void *context) {
    say("push\n");
    depth += 1;
    return context == (void *)0xc0 ? 0 : INVALID_CONTEXT;
}

int cuCtxPopCurrent_v2(void **context) {
    if (functions) {
        say("%d functions\n", functions);
        functions = 0;
    }
    say("pop\n");
    *context = (void *)0xc0;
    depth -= 1;
    return depth < 0 ? INVALID_CONTEXT : 0;
}

int cuModuleLoadData(void **module, const void *image) {
    say("load %s\n", memcmp(image, "\177ELF", 4) == 0 ? "an ELF file" : "something else");
    *module = (void *)0x30d;
    return depth == 1 ? 0 : INVALID_CONTEXT;
}

int cuModuleUnload(void *module) {
    say("unload\n");
    return depth == 1 && module == (void *)0x30d ? 0 : INVALID_CONTEXT;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    int i = 0;
    while (names[i][0] && strcmp(names[i], name) != 0) {
        i += 1;
    }
    strncpy(names[i], name, sizeof names[i] - 1);
    *function = names[i];
    functions += 1;
    return depth == 1 && module == (void *)0x30d ? 0 : INVALID_CONTEXT;
}

// p: 8 bytes, a pointer; u: 4 bytes.
static const char *arguments_of(const char *kernel) {
    if (strncmp(kernel, "rope", 4) == 0) {
        return "pppuuuu";
    }
    if (strncmp(kernel, "add_layer_norm", 14) == 0) {
        return "ppppppuuuuu";
    }
    if (strncmp(kernel, "pool_chunks", 11) == 0) {
        return "ppppuu";
    }
    return "pppu"; // pool_sequences
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    say("%s %u %u %u %u %u %u %u %llx:", (char *)function, x, y, z, tx, ty, tz, shared, (unsigned long long)stream);
    const char *kinds = arguments_of(function);
    for (int i = 0; kinds[i]; ++i) {
        if (kinds[i] == 'p') {
            say(" %llx", *(unsigned long long *)arguments[i]);
        } else {
            say(" %x", *(unsigned *)arguments[i]);
        }
    }
    say(extra ? " extra\n" : "\n");
    return depth == 1 ? launches_return : INVALID_CONTEXT;
}

int cuGetErrorString(int error, const char **words) {
    *words = error == INVALID_DEVICE ? "invalid device ordinal" : "an error";
    return 0;
}
