/* A library that is loaded late: its constructor and its functions allocate. */
#include "pattern.h"

static uint64_t *memory;

__attribute__((constructor)) static void start(void) { memory = patterned(32, 5); }

int plugin_check(void) {
    verify(memory, 32 * 256, 5, "plugin");
    return 42;
}

__attribute__((destructor)) static void stop(void) { free(memory); }
