/* Between `loops.c` and `recorder.c`, which stands in for Hinterland where it is preloaded. */
#include <stddef.h>

/* Built position-independent: an address of 0 is told from a function. */

/* An object of whole pages: from here on each page's first touch is seen, and each hint for it. */
extern void recorder_watch(const char *name, void *object, size_t bytes) __attribute__((weak));
/* Writes what was seen of it since to standard error, and stops watching. */
extern void recorder_report(void) __attribute__((weak));
/* Writes how many pages were evicted while nothing was watched, since it last wrote. */
extern void recorder_evicted(const char *kernel) __attribute__((weak));
/* Writes how often something was kept since it last wrote, how often all of an object was, and nothing else, and of how much that is not released. */
extern void recorder_kept(const char *kernel, const void *object, size_t bytes) __attribute__((weak));
