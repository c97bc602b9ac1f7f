/* A library that wraps calls of libc's and looks them up by a handle of libc when they are made first (-DLIBRARY), as tracers do. And a program for it,
 * which pages. */
#define _GNU_SOURCE
#include "../c/pattern.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifdef LIBRARY

int wrapped;

static void *of_libc(const char *name) {
    wrapped++;
    return dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), name);
}

ssize_t read(int fd, void *into, size_t bytes) {
    static ssize_t (*next)(int, void *, size_t);
    if (!next) next = (ssize_t (*)(int, void *, size_t))of_libc("read");
    return next(fd, into, bytes);
}

int ioctl(int fd, unsigned long request, ...) {
    static int (*next)(int, unsigned long, ...);
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (!next) next = (int (*)(int, unsigned long, ...))of_libc("ioctl");
    return next(fd, request, argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!next) next = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))of_libc("pthread_create");
    return next(thread, attributes, start, argument);
}

#else

static void *nothing(void *argument) {
    return argument;
}

int main(void) {
    uint64_t *memory = patterned(32, 1);
    verify(memory, 32 * 256, 1, "before");
    int ends[2], waiting = 0;
    char near[8] = "eight b";
    pthread_t thread;
    if (pipe(ends) || write(ends[1], near, 8) != 8) return 98;
    int asked = ioctl(ends[0], FIONREAD, &waiting);
    long got = read(ends[0], near, 8);
    int failed = pthread_create(&thread, NULL, nothing, NULL);
    if (!failed) pthread_join(thread, NULL);
    int *wrapped = dlsym(RTLD_DEFAULT, "wrapped");
    verify(memory, 32 * 256, 1, "after");
    printf("read %ld ioctl %d thread %d wrapped %d\n", got, asked, failed, wrapped ? *wrapped : -1);
    return 0;
}

#endif
