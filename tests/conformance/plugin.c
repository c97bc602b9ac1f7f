// Loaded and unloaded by loading.c; allocates in its constructor and has thread-local data.
#include "check.h"

static __thread uint64_t local[4000];
static uint64_t *made;

__attribute__((constructor)) static void begin(void) {
    made = malloc(400000);
    fill(made, 400000, 77);
}

__attribute__((destructor)) static void end(void) { free(made); }

size_t plugin_wrong(void) {
    fill(local, sizeof local, 78);
    return wrong(made, 400000, 77) + wrong(local, sizeof local, 78);
}
