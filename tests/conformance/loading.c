// dlopen and dlclose, again and again, also from threads; a signal handler that runs while memory is allocated.
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/time.h>

static const char *plugin_path;
static volatile sig_atomic_t ticks;

static void *load(void *unused) {
    size_t bad = 0;
    for (int i = 0; i < 40; i++) {
        void *plugin = dlopen(plugin_path, RTLD_NOW | (i % 2 ? RTLD_GLOBAL : RTLD_LOCAL));
        MUST(plugin);
        size_t (*plugin_wrong)(void) = (size_t (*)(void))dlsym(plugin, "plugin_wrong");
        MUST(plugin_wrong);
        bad += plugin_wrong();
        MUST(!dlclose(plugin));
    }
    return (void *)bad;
}

static void tick(int number) {
    int kept = errno;
    void *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); // Async-signal-safe in fact.
    memset(p, number, 3 * PAGE);
    munmap(p, 3 * PAGE);
    ticks++;
    errno = kept;
}

int main(int argc, char **argv) {
    MUST(argc == 2);
    plugin_path = argv[1];
    SHOW((size_t)load(NULL));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, load, NULL);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        SHOW((size_t)bad);
    }
    struct sigaction act = {0};
    act.sa_handler = tick;
    act.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &act, NULL);
    struct itimerval often = {{0, 500}, {0, 500}}, never = {0};
    setitimer(ITIMER_REAL, &often, NULL);
    size_t bad = 0;
    for (uint64_t i = 0; ticks < 300; i++) {
        size_t bytes = mix(i) % 100000 & ~(size_t)7;
        void *p = malloc(bytes), *q = mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fill(p, bytes, i), fill(q, 5 * PAGE, i);
        p = realloc(p, bytes + 50000);
        bad += wrong(p, bytes, i) + wrong(q, 5 * PAGE, i);
        free(p), munmap(q, 5 * PAGE);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    SHOW(bad);
}
