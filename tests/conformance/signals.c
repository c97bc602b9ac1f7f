// Signals: what a program sets is what it reads and what happens, also for the signals that Hinterland uses itself; far
// memory may be touched in handlers, on small stacks, and with everything blocked.
#include "check.h"
#include "../../crates/runtime/include/hinterland.h"
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <ucontext.h>

enum { FAR_BYTES = 40 << 20, STEP = 4096 };
static char *far;
static size_t turn;

// Reads a part of the far block that has certainly been taken out, and says how much of it is wrong.
static size_t touch(size_t bytes) {
    size_t bad = 0;
    for (size_t i = 0; i < bytes; i += STEP) {
        size_t at = (turn += 7 * STEP) % FAR_BYTES & ~(size_t)(STEP - 1);
        bad += *(uint64_t *)(far + at) != mix(at);
    }
    return bad;
}

static const int watched[] = {SIGBUS, SIGSYS, SIGILL, SIGSEGV, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM};
enum { WATCHED = sizeof watched / sizeof *watched };

// A set as one number: bit i for the i-th watched signal.
static int packed(const sigset_t *set) {
    int bits = 0;
    for (int i = 0; i < WATCHED; i++) bits |= (sigismember(set, watched[i]) == 1) << i;
    return bits;
}

static int blocked(void) {
    sigset_t now;
    MUST(!pthread_sigmask(SIG_BLOCK, NULL, &now));
    return packed(&now);
}

static int pending(void) {
    sigset_t now;
    MUST(!sigpending(&now));
    return packed(&now);
}

static sigset_t set_of(int a, int b) {
    sigset_t set;
    sigemptyset(&set);
    if (a) sigaddset(&set, a);
    if (b) sigaddset(&set, b);
    return set;
}

static void mask(int how, int a, int b) {
    sigset_t set = set_of(a, b);
    MUST(!sigprocmask(how, &set, NULL));
}

static void everything(int how) {
    sigset_t all;
    sigfillset(&all);
    MUST(!sigprocmask(how, &all, NULL));
}

// What the last handler saw.
static volatile int seen_signal, seen_code, seen_mask, seen_count, seen_sender, seen_bad, seen_on_stack;
static char *volatile seen_address;
static char *altstack;
static size_t altstack_bytes;
static volatile int skip_bytes;
static sigjmp_buf back;
static volatile int jump;

static void note(int signal, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    char here;
    seen_signal = signal, seen_code = info->si_code, seen_address = info->si_addr, seen_count++;
    seen_sender = info->si_pid == getpid();
    seen_mask = blocked();
    seen_bad = touch(64 * STEP);
    seen_on_stack = altstack && &here > altstack && &here < altstack + altstack_bytes;
    at->uc_mcontext.gregs[REG_RIP] += skip_bytes;
    if (jump) siglongjmp(back, 1);
}

static void handle(int signal, int flags, int also_blocked) {
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | flags};
    action.sa_mask = set_of(also_blocked, 0);
    MUST(!sigaction(signal, &action, NULL));
}

static void seen(void) {
    printf("signal %d code %d mask %x count %d bad %d\n", seen_signal, seen_code, seen_mask, seen_count, seen_bad);
}

// Runs a function in a child and shows how it ended.
static void in_child(void (*run)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) run(), fflush(stdout), _exit(7);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    printf("child: exited %d code %d signal %d\n", WIFEXITED(status), WIFEXITED(status) ? WEXITSTATUS(status) : 0,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static volatile int first_count;
static void first_note(int signal) { first_count++; }

static void dispositions(void) {
    for (int i = 0; i < WATCHED; i++) {
        struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_RESTART | (i & 1 ? SA_ONSTACK : 0)};
        sigfillset(&action.sa_mask);
        sigdelset(&action.sa_mask, watched[(i + 1) % WATCHED]);
        struct sigaction old, now;
        MUST(!sigaction(watched[i], &action, &old) && !sigaction(watched[i], NULL, &now));
        SHOW(old.sa_handler == SIG_DFL);
        SHOW(now.sa_sigaction == note && (now.sa_flags & ~0x4000000) == action.sa_flags);
        SHOW(packed(&now.sa_mask));
        SHOW(signal(watched[i], SIG_IGN) == (sighandler_t)note);
        SHOW(signal(watched[i], SIG_DFL) == SIG_IGN);
    }
    struct sigaction once = {.sa_handler = first_note, .sa_flags = SA_RESETHAND}, after;
    MUST(!sigaction(SIGUSR1, &once, NULL));
    raise(SIGUSR1);
    MUST(!sigaction(SIGUSR1, NULL, &after));
    SHOW(after.sa_handler == SIG_DFL && (after.sa_flags & ~0x4000000) == SA_RESETHAND);
    SHOW(packed(&after.sa_mask));
    CALL(sigaction(SIGKILL, &(struct sigaction){.sa_handler = SIG_IGN}, NULL));
    CALL(sigaction(0, NULL, NULL));
    CALL(sigaction(65, NULL, NULL));
    CALL(sigaction(32, NULL, &(struct sigaction){}));
}

static void *inherited(void *unused) {
    int first = blocked();
    everything(SIG_BLOCK);
    size_t bad = touch(MIB);
    return (void *)(intptr_t)(first | (int)bad << 16);
}

static void masks(void) {
    SHOW(blocked());
    mask(SIG_BLOCK, SIGBUS, SIGUSR1);
    SHOW(blocked());
    mask(SIG_SETMASK, SIGILL, SIGSYS);
    SHOW(blocked());
    pthread_t thread;
    void *result;
    MUST(!pthread_create(&thread, NULL, inherited, NULL) && !pthread_join(thread, &result));
    SHOW((intptr_t)result);
    mask(SIG_UNBLOCK, SIGSYS, SIGTERM);
    SHOW(blocked());
    everything(SIG_BLOCK);
    SHOW(blocked());
    SHOW(touch(4 * MIB));
    everything(SIG_UNBLOCK);
    SHOW(blocked());
    SHOW(sighold(SIGBUS) | blocked() << 4);
    SHOW(sigrelse(SIGBUS) | blocked() << 4);
    CALL(sigprocmask(99, &(sigset_t){}, NULL));
    CALL(sigprocmask(99, NULL, &(sigset_t){}));
    sigjmp_buf here;
    mask(SIG_BLOCK, SIGBUS, SIGUSR2);
    if (!sigsetjmp(here, 1)) everything(SIG_UNBLOCK), siglongjmp(here, 1);
    SHOW(blocked());
    everything(SIG_UNBLOCK);
}

static void hold_and_release(void) {
    for (int i = 0; i < WATCHED; i++) {
        handle(watched[i], 0, watched[(i + 1) % WATCHED]);
        mask(SIG_BLOCK, watched[i], 0);
        kill(getpid(), watched[i]);
        raise(watched[i]);
        SHOW(pending());
        SHOW(seen_count);
        mask(SIG_UNBLOCK, watched[i], 0);
        seen();
        SHOW(seen_sender);
        SHOW(pending() | blocked());
        handle(watched[i], SA_NODEFER, 0);
        raise(watched[i]);
        seen();
        signal(watched[i], SIG_IGN);
        raise(watched[i]);
        SHOW(seen_count);
        signal(watched[i], SIG_DFL);
    }
    sigset_t empty = set_of(0, 0);
    for (int i = 0; i < 3; i++) {
        handle(watched[i], 0, 0);
        mask(SIG_BLOCK, watched[i], 0);
        raise(watched[i]);
        CALL(sigsuspend(&empty));
        seen();
        SHOW(blocked());
        raise(watched[i]);
        CALL(pselect(0, NULL, NULL, NULL, &(struct timespec){0, 1000}, NULL));
        SHOW(seen_count);
        mask(SIG_UNBLOCK, watched[i], 0);
        SHOW(seen_count);
        signal(watched[i], SIG_DFL);
    }
}

// Two pages of a file that has one, anywhere or in the middle of other memory.
static char *truncated(int inside) {
    FILE *file = tmpfile();
    MUST(file && !ftruncate(fileno(file), 2 * PAGE));
    char *place = NULL;
    if (inside) MUST((place = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED), place += MIB;
    char *at = mmap(place, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | (inside ? MAP_FIXED : 0), fileno(file), 0);
    MUST(at != MAP_FAILED && !ftruncate(fileno(file), PAGE));
    fclose(file);
    return at;
}

static volatile char sink;
static char *cut;
static void read_cut(void) { sink = cut[PAGE + 5]; }
static void read_cut_blocked(void) { handle(SIGBUS, 0, 0), mask(SIG_BLOCK, SIGBUS, 0), read_cut(); }
static void read_cut_ignored(void) { signal(SIGBUS, SIG_IGN), read_cut(); }
static void read_cut_twice(void) { handle(SIGBUS, SA_RESETHAND, 0), read_cut(); }
static void invalid(void) { __asm__ volatile("ud2" ::: "memory"); }
static void killed_by_system(void) { raise(SIGSYS); }
static void killed_by_bus(void) { kill(getpid(), SIGBUS); for (;;) pause(); }

static void caused(void) {
    jump = 1;
    for (int which = 0; which < 6; which++) {
        int flags = which % 3;
        cut = truncated(which < 3);
        handle(SIGBUS, flags == 0 ? 0 : flags == 1 ? SA_ONSTACK : SA_NODEFER, SIGUSR1);
        if (!sigsetjmp(back, 1)) read_cut();
        seen();
        SHOW(seen_address - cut);
        SHOW(blocked());
        SHOW(touch(MIB));
    }
    jump = 0;
    handle(SIGILL, 0, SIGBUS);
    skip_bytes = 2;
    invalid();
    skip_bytes = 0;
    seen();
    signal(SIGBUS, SIG_DFL), signal(SIGILL, SIG_DFL);
    for (int inside = 0; inside < 2; inside++) cut = truncated(inside), in_child(read_cut);
    in_child(read_cut_blocked), in_child(read_cut_ignored), in_child(read_cut_twice);
    in_child(invalid), in_child(killed_by_system), in_child(killed_by_bus);
}

static volatile size_t told_wrong, told;
static volatile int changing_over, sent;
static void told_by_sender(int signal, siginfo_t *info, void *context) {
    told_wrong += info->si_signo != signal || info->si_code != SI_QUEUE || info->si_value.sival_int != sent;
    told++;
}
static void told_nothing(int signal) {}

static void *changes_action(void *unused) {
    struct sigaction with = {.sa_sigaction = told_by_sender, .sa_flags = SA_SIGINFO | SA_RESTART}, without = {.sa_handler = told_nothing};
    while (!changing_over) {
        MUST(!sigaction(SIGUSR2, &with, NULL));
        for (volatile int i = 0; i < 50; i++) {}
        MUST(!sigaction(SIGUSR2, &without, NULL));
    }
    return NULL;
}

// Signals come while two threads change what they do: each finds an action as one of them has set it.
static void changed_actions(void) {
    pthread_t threads[2];
    MUST(!sigaction(SIGUSR2, &(struct sigaction){.sa_handler = told_nothing}, NULL));
    for (int i = 0; i < 2; i++) MUST(!pthread_create(&threads[i], NULL, changes_action, NULL));
    while (told < 2000) pthread_sigqueue(pthread_self(), SIGUSR2, (union sigval){.sival_int = ++sent});
    changing_over = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    SHOW(told_wrong);
    signal(SIGUSR2, SIG_DFL);
}

static volatile int asked;
static void *asks(void *unused) {
    struct sigaction action;
    while (!changing_over) MUST(!sigaction(SIGUSR2, NULL, &action) && !sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL)), asked++;
    return NULL;
}

// A signal that comes in the middle of such a call waits for its end only.
static void sent_while_asking(void) {
    pthread_t thread;
    size_t late = 0;
    first_count = changing_over = 0;
    signal(SIGSYS, first_note), signal(SIGBUS, first_note);
    MUST(!pthread_create(&thread, NULL, asks, NULL));
    for (int round = 0; round < 500; round++) {
        MUST(!pthread_kill(thread, round & 1 ? SIGSYS : SIGBUS));
        for (int before = asked; asked - before < 2;) sched_yield();
        late += first_count != round + 1, first_count = round + 1;
    }
    changing_over = 1;
    pthread_join(thread, NULL);
    SHOW(late);
    signal(SIGSYS, SIG_DFL), signal(SIGBUS, SIG_DFL);
    first_count = 0;
}

static void leave(int signal) { siglongjmp(back, 1); }

static char *leaving;
static volatile int leaving_over;
static void *makes_leave(void *unused) {
    while (!leaving_over) hinterland_evict(leaving, MIB), sched_yield();
    return NULL;
}

static void raises(int signal) { raise(first_count & 1 ? SIGBUS : SIGILL); }

// Handlers on a stack that leaves all the time, wherever in a page the frame ends: for a SIGBUS of the program's own, and with another
// signal that waits for the handler's end.
static void on_a_leaving_stack(void) {
    enum { LEAST = 64 << 10, ROUNDS = 10000 };
    leaving = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_handler = leave, .sa_flags = SA_ONSTACK}, outer = {.sa_handler = raises, .sa_flags = SA_ONSTACK};
    outer.sa_mask = set_of(SIGBUS, SIGILL);
    MUST(leaving != MAP_FAILED && !sigaction(SIGUSR1, &outer, NULL));
    cut = truncated(0);
    pthread_t thread;
    MUST(!pthread_create(&thread, NULL, makes_leave, NULL));
    first_count = 0;
    size_t late = 0;
    for (volatile int round = 0; round < ROUNDS; round++) {
        MUST(!sigaltstack(&(stack_t){.ss_sp = leaving, .ss_size = LEAST + round * 64 % PAGE}, NULL));
        MUST(!sigaction(SIGBUS, &action, NULL));
        if (!sigsetjmp(back, 1)) read_cut(), printf("not reached\n");
        signal(SIGBUS, first_note), signal(SIGILL, first_note);
        raise(SIGUSR1);
        late += first_count != round + 1, first_count = round + 1;
    }
    leaving_over = 1;
    pthread_join(thread, NULL);
    SHOW(late);
    MUST(!sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL));
    for (int i = 0; i < 3; i++) signal((int[]){SIGBUS, SIGILL, SIGUSR1}[i], SIG_DFL);
    munmap(leaving, MIB);
    first_count = 0;
}

// A handler changes the mask that its return brings.
static void edit(int signal, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    printf("before: %x\n", packed(&at->uc_sigmask));
    sigaddset(&at->uc_sigmask, SIGILL);
    sigaddset(&at->uc_sigmask, SIGUSR2);
    sigdelset(&at->uc_sigmask, SIGTERM);
}

static void edited_mask(void) {
    struct sigaction action = {.sa_sigaction = edit, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    MUST(!sigaction(SIGBUS, &action, NULL));
    mask(SIG_BLOCK, SIGTERM, SIGSYS);
    raise(SIGBUS);
    SHOW(blocked());
    everything(SIG_UNBLOCK);
    signal(SIGBUS, SIG_DFL);
}

static void try_in_handler(int signal) {
    stack_t now;
    CALL(sigaltstack(NULL, &now));
    SHOW(now.ss_flags);
    CALL(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL));
    SHOW(touch(MIB));
}

static void *alternate(void *unused) {
    stack_t now;
    MUST(!sigaltstack(NULL, &now));
    SHOW(now.ss_flags);
    size_t frame = getauxval(51 /* AT_MINSIGSTKSZ */);
    if (frame < 2048) frame = 2048;
    size_t sizes[] = {frame + 1536, 64 << 10, 1 << 20};
    for (int i = 0; i < 3; i++) {
        altstack_bytes = sizes[i];
        altstack = malloc(altstack_bytes);
        MUST(!sigaltstack(&(stack_t){.ss_sp = altstack, .ss_size = altstack_bytes}, &now));
        SHOW(now.ss_flags);
        MUST(!sigaltstack(NULL, &now));
        SHOW(now.ss_sp == altstack && now.ss_size == sizes[i] && now.ss_flags == 0);
        for (int k = 0; k < 4; k++) {
            int signal = (int[]){SIGUSR1, SIGBUS, SIGILL, SIGSYS}[k];
            handle(signal, SA_ONSTACK, 0);
            SHOW(touch(20 * MIB));
            raise(signal);
            seen();
            if (i > 0) SHOW(seen_on_stack);
            handle(signal, 0, 0);
            raise(signal);
            SHOW(seen_on_stack);
        }
        if (i > 0) {
            MUST(!sigaction(SIGBUS, &(struct sigaction){.sa_handler = try_in_handler, .sa_flags = SA_ONSTACK}, NULL));
            raise(SIGBUS);
        }
        stack_t off = {.ss_flags = SS_DISABLE};
        MUST(!sigaltstack(&off, &now));
        SHOW(now.ss_sp == altstack);
        free(altstack);
        altstack = NULL;
    }
    CALL(sigaltstack(&(stack_t){.ss_sp = far, .ss_size = 100}, NULL));
    CALL(sigaltstack(&(stack_t){.ss_sp = far, .ss_size = 1 << 16, .ss_flags = 77}, NULL));
    for (int k = 0; k < 4; k++) signal((int[]){SIGUSR1, SIGBUS, SIGILL, SIGSYS}[k], SIG_DFL);
    return NULL;
}

static void nested_on_alternate(int signal, siginfo_t *info, void *context) {
    stack_t now, *then = &((ucontext_t *)context)->uc_stack;
    SHOW(then->ss_sp == altstack && then->ss_size == altstack_bytes);
    SHOW(then->ss_flags);
    MUST(!sigaltstack(NULL, &now));
    SHOW(now.ss_flags);
    SHOW(now.ss_size == altstack_bytes);
    SHOW(touch(MIB));
    raise(SIGUSR2);
    SHOW(seen_on_stack);
}

// What a handler on the alternate stack is told of it, disarmed or not; and that handlers elsewhere leave it alone.
static void told_on_alternate(void) {
    altstack_bytes = 64 << 10;
    altstack = malloc(altstack_bytes);
    struct sigaction action = {.sa_sigaction = nested_on_alternate, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    stack_t now;
    for (int disarm = 0; disarm < 2; disarm++) {
        int flags = disarm ? 1u << 31 /* SS_AUTODISARM */ : 0;
        MUST(!sigaltstack(&(stack_t){.ss_sp = altstack, .ss_size = altstack_bytes, .ss_flags = flags}, NULL));
        handle(SIGUSR2, SA_ONSTACK, 0);
        for (int k = 0; k < 2; k++) {
            int signal = (int[]){SIGUSR1, SIGBUS}[k];
            MUST(!sigaction(signal, &action, NULL));
            raise(signal);
            MUST(!sigaltstack(NULL, &now));
            SHOW(now.ss_sp == altstack && now.ss_flags == flags);
        }
        // The kernel takes the stack away for any handler, if it was told to.
        action.sa_flags = SA_SIGINFO;
        MUST(!sigaction(SIGUSR1, &action, NULL));
        raise(SIGUSR1);
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        fill(altstack, altstack_bytes, 5);
        SHOW(touch(20 * MIB));
        handle(SIGUSR2, 0, 0), handle(SIGBUS, 0, 0);
        raise(SIGUSR2), raise(SIGBUS);
        SHOW(touch(20 * MIB));
        SHOW(wrong(altstack, altstack_bytes, 5));
    }
    MUST(!sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL));
    free(altstack);
    altstack = NULL;
    for (int k = 0; k < 3; k++) signal((int[]){SIGUSR1, SIGUSR2, SIGBUS}[k], SIG_DFL);
}

static ucontext_t first_context, first_coroutine;
static void first_spin(void) {
    ualarm(20000, 0);
    while (!first_count) {}
    raise(SIGUSR1);
    SHOW(first_count);
}

// The first signals that ever come on a stack from malloc, of which only the page in use is there.
static void first_on_a_coroutine(void) {
    signal(SIGALRM, first_note), signal(SIGUSR1, first_note);
    char *stack = malloc(1 << 20);
    MUST(!getcontext(&first_coroutine));
    first_coroutine.uc_stack.ss_sp = stack;
    first_coroutine.uc_stack.ss_size = ((uintptr_t)stack + (1 << 19) & -PAGE) + 512 - (uintptr_t)stack;
    first_coroutine.uc_link = &first_context;
    makecontext(&first_coroutine, first_spin, 0);
    MUST(!swapcontext(&first_context, &first_coroutine));
    signal(SIGALRM, SIG_DFL), signal(SIGUSR1, SIG_DFL);
    free(stack);
}

static volatile size_t storm_bad, storm_count;
static void thunder(int signal) { storm_bad += touch(3 * STEP), storm_count++; }

static void storm(void) {
    signal(SIGALRM, thunder);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 150}, {0, 150}}, NULL);
    size_t bad = 0;
    for (int i = 0; i < 40 || storm_count < 50; i++) bad += touch(4 * MIB);
    setitimer(ITIMER_REAL, &(struct itimerval){}, NULL);
    SHOW(bad);
    SHOW(storm_bad);
    signal(SIGALRM, SIG_DFL);
}

enum { WIDE = 256 << 10, NARROW = 32 << 10 };
static char *wide, *narrow;
static volatile size_t elsewhere;
static void where(int signal) {
    char here;
    storm_count++;
    // On the thread's own stack or on one of the two: not beyond the end of either.
    elsewhere += &here >= wide && &here < wide + 2 * WIDE && (&here >= wide + WIDE) ||
                 &here >= narrow && &here < narrow + 2 * WIDE && (&here >= narrow + NARROW);
}

// Signals come while the alternate stack is changed: each finds the one before or the one after.
static void changed_under_signals(void) {
    wide = mmap(NULL, 2 * WIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    narrow = mmap(NULL, 2 * WIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(wide != MAP_FAILED && narrow != MAP_FAILED);
    struct sigaction action = {.sa_handler = where, .sa_flags = SA_ONSTACK | SA_RESTART};
    MUST(!sigaction(SIGALRM, &action, NULL));
    stack_t set[] = {{.ss_sp = wide, .ss_size = WIDE}, {.ss_flags = SS_DISABLE}, {.ss_sp = narrow, .ss_size = NARROW}};
    storm_count = 0;
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 50}, {0, 50}}, NULL);
    for (int i = 0; storm_count < 3000; i++) MUST(!sigaltstack(&set[i % 3], NULL));
    setitimer(ITIMER_REAL, &(struct itimerval){}, NULL);
    SHOW(elsewhere);
    MUST(!sigaltstack(&set[1], NULL));
    signal(SIGALRM, SIG_DFL);
    munmap(wide, 2 * WIDE), munmap(narrow, 2 * WIDE);
}

static void leave_a_read(void) {
    int ends[2];
    MUST(!pipe(ends));
    signal(SIGALRM, leave);
    for (volatile int i = 0; i < 20; i++) {
        char *buffer = far + (size_t)i * MIB;
        if (!sigsetjmp(back, 1)) {
            setitimer(ITIMER_REAL, &(struct itimerval){{}, {0, 2000}}, NULL);
            read(ends[0], buffer, PAGE);
            SHOW("not reached");
        }
        SHOW(blocked());
    }
    signal(SIGALRM, SIG_DFL);
    close(ends[0]), close(ends[1]);
    SHOW(touch(8 * MIB));
}

static void *waiter(void *unused) {
    sigset_t set = set_of(SIGBUS, SIGUSR1);
    int got;
    MUST(!sigwait(&set, &got));
    return (void *)(intptr_t)got;
}

static void waits(void) {
    everything(SIG_BLOCK);
    for (int i = 0; i < 5; i++) {
        sigset_t set = set_of(watched[i], SIGUSR2);
        int got = 0;
        raise(watched[i]);
        SHOW(sigwait(&set, &got) | got << 8);
        siginfo_t info;
        kill(getpid(), watched[i]);
        SHOW(sigwaitinfo(&set, &info));
        SHOW(info.si_code);
        CALL(sigtimedwait(&set, &info, &(struct timespec){0, 3000000}));
        pthread_t thread;
        void *result;
        MUST(!pthread_create(&thread, NULL, waiter, NULL));
        usleep(3000);
        pthread_kill(thread, i % 2 ? SIGUSR1 : SIGBUS);
        pthread_join(thread, &result);
        SHOW((intptr_t)result);
    }
    sigset_t set = set_of(SIGUSR1, SIGTERM);
    int fd = signalfd(-1, &set, SFD_CLOEXEC);
    raise(SIGTERM);
    struct signalfd_siginfo info;
    SHOW(read(fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGTERM);
    close(fd);
    everything(SIG_UNBLOCK);
}

static void *small(void *argument) {
    size_t bad = 0;
    for (int i = 0; i < 50; i++) bad += touch(16 * STEP);
    return (void *)bad;
}

static void small_stacks(void) {
    size_t least = sysconf(_SC_THREAD_STACK_MIN) + 4096;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, least < 16384 ? 16384 : least);
    size_t bad = 0;
    for (int round = 0; round < 40; round++) {
        pthread_t threads[8];
        for (int i = 0; i < 8; i++) MUST(!pthread_create(&threads[i], &attributes, small, NULL));
        for (int i = 0; i < 8; i++) {
            void *result;
            pthread_join(threads[i], &result);
            bad += (size_t)result;
        }
    }
    SHOW(bad);
}

enum { COROUTINES = 6, COROUTINE_BYTES = 128 << 10 };
static ucontext_t coroutines[COROUTINES], scheduler;
static volatile size_t coroutine_bad;

static void alarms(int microseconds) {
    setitimer(ITIMER_REAL, &(struct itimerval){{0, microseconds}, {0, microseconds}}, NULL);
}

// Memory that comes, moves and goes while the stack itself is far. Without alarms: their handlers touch so much that on a busy
// machine nothing else would get on.
static size_t move_memory(int me) {
    alarms(0);
    size_t bad = 0, bytes = MIB / 4;
    unsigned char *heap = malloc(bytes), *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(heap && map != MAP_FAILED);
    memset(heap, me + 1, bytes), memset(map, me + 2, bytes);
    bad += touch(MIB);
    MUST(heap = realloc(heap, 2 * bytes));
    MUST((map = mremap(map, bytes, 2 * bytes, MREMAP_MAYMOVE)) != MAP_FAILED);
    for (size_t i = 0; i < 2 * bytes; i += 512) bad += map[i] != (i < bytes ? me + 2 : 0);
    MUST(!madvise(map, bytes / 2, MADV_DONTNEED) && !mprotect(map + bytes, bytes, PROT_READ));
    for (size_t i = 0; i < bytes; i += 512) bad += map[i] != (i < bytes / 2 ? 0 : me + 2);
    for (size_t i = 0; i < bytes; i += 512) bad += heap[i] != me + 1;
    unsigned char *zeros = calloc(1, bytes);
    for (size_t i = 0; i < bytes; i += 512) bad += zeros[i] != 0;
    free(zeros), free(heap);
    MUST(!munmap(map, 2 * bytes));
    alarms(2000);
    return bad;
}

// Runs on a stack that is malloc'ed: calls, signals and waits with what is below its pointer taken out.
static void coroutine(int me) {
    int ends[2];
    MUST(!pipe(ends));
    for (int round = 0; round < 12; round++) {
        char text[64];
        coroutine_bad += touch(2 * MIB);
        swapcontext(&coroutines[me], &scheduler);
        snprintf(text, sizeof text, "%d.%d", me, round);
        MUST(write(ends[1], text, strlen(text)) == (ssize_t)strlen(text));
        char got[64] = {};
        MUST(read(ends[0], got, sizeof got) == (ssize_t)strlen(text) && !strcmp(got, text));
        raise(watched[(me + round) % WATCHED]);
        coroutine_bad += seen_bad;
        swapcontext(&coroutines[me], &scheduler);
        sigset_t all, before;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, &before);
        coroutine_bad += touch(MIB / 2);
        sigprocmask(SIG_SETMASK, &before, NULL);
        if (round % 6 == me) coroutine_bad += move_memory(me);
    }
    close(ends[0]), close(ends[1]);
}

static void on_malloced_stacks(void) {
    int first = seen_count;
    for (int i = 0; i < WATCHED; i++) handle(watched[i], 0, SIGUSR1);
    for (int i = 0; i < COROUTINES; i++) {
        getcontext(&coroutines[i]);
        coroutines[i].uc_stack = (stack_t){.ss_sp = malloc(COROUTINE_BYTES), .ss_size = COROUTINE_BYTES};
        coroutines[i].uc_link = &scheduler;
        makecontext(&coroutines[i], (void (*)(void))coroutine, 1, i);
    }
    alarms(2000);
    for (int round = 0; round < 25; round++)
        for (int i = 0; i < COROUTINES; i++) swapcontext(&scheduler, &coroutines[i]);
    alarms(0);
    SHOW(coroutine_bad);
    SHOW(seen_count - first >= COROUTINES * 12);
    for (int i = 0; i < WATCHED; i++) signal(watched[i], SIG_DFL);
    for (int i = 0; i < COROUTINES; i++) free(coroutines[i].uc_stack.ss_sp);
    seen_count = 0;
}

static char early[64 << 10];
static void overflowed(int signal) {
    char here;
    _exit(&here >= early && &here < early + sizeof early ? 9 : 8);
}

// What a library that is loaded before the others, or a language's runtime, sets before any constructor has run.
static void set_early(void) {
    sigaltstack(&(stack_t){.ss_sp = early, .ss_size = sizeof early}, NULL);
    sigaction(SIGSEGV, &(struct sigaction){.sa_handler = overflowed, .sa_flags = SA_ONSTACK}, NULL);
}
__attribute__((section(".preinit_array"), used)) static void (*const at_first)(void) = set_early;

static int deeper(volatile char *above) {
    volatile char more[4096];
    more[0] = *above;
    return deeper(more) + more[0];
}
static void overflow(void) { deeper(&sink); }

static void set_before_the_start(void) {
    stack_t now;
    MUST(!sigaltstack(NULL, &now));
    SHOW(now.ss_sp == early && now.ss_size == sizeof early && now.ss_flags == 0);
    in_child(overflow);
    MUST(!sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, &now));
    SHOW(now.ss_sp == early);
    signal(SIGSEGV, SIG_DFL);
}

static volatile int rounds_over;
static void *sleeps(void *unused) {
    volatile uint64_t kept[64];
    size_t bad = 0;
    char *own = malloc(64 << 10);
    for (int i = 0; i < 64; i++) kept[i] = mix(i);
    MUST(!sigaltstack(&(stack_t){.ss_sp = own, .ss_size = 64 << 10, .ss_flags = 1u << 31 /* SS_AUTODISARM */}, NULL));
    for (int round = 0; round < 30; round++) {
        struct timespec limit = {0, 4000000}, left = {0, 0};
        struct pollfd nothing = {.fd = -1, .events = POLLIN};
        sigset_t set = set_of(SIGUSR2, SIGBUS), none = set_of(0, 0);
        errno = 0;
        // The signal may come before the call or after it.
        if (round % 3 == 0 && ppoll(&nothing, 1, &limit, &none)) bad += errno != EINTR;
        if (round % 3 == 1 && nanosleep(&limit, &left)) bad += errno != EINTR;
        if (round % 3 == 2) bad += sigtimedwait(&set, NULL, &limit) != -1 || errno != EINTR && errno != EAGAIN;
        for (int i = 0; i < 64; i++) bad += kept[i] != mix(i);
        while (first_count <= round) sched_yield();
        rounds_over = round + 1;
    }
    MUST(!sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL));
    free(own);
    return (void *)bad;
}

static void interrupts(int signal) { storm_bad += touch(256 * STEP), first_count++; }

// A call from a stack that is malloc'ed, interrupted by a handler on an alternate stack that is none meanwhile, which faults.
static void interrupted_and_disarmed(void) {
    size_t bytes = MIB, bad;
    char *stack = malloc(bytes);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, (char *)((uintptr_t)stack + PAGE & -PAGE), bytes / 2);
    MUST(!sigaction(SIGUSR1, &(struct sigaction){.sa_handler = interrupts, .sa_flags = SA_ONSTACK}, NULL));
    storm_bad = first_count = 0;
    pthread_t thread;
    MUST(!pthread_create(&thread, &attributes, sleeps, NULL));
    for (int round = 0; round < 30; round++) {
        usleep(2000);
        pthread_kill(thread, SIGUSR1);
        while (rounds_over <= round) sched_yield();
    }
    MUST(!pthread_join(thread, (void **)&bad));
    SHOW(bad);
    SHOW(storm_bad);
    first_count = 0;
    signal(SIGUSR1, SIG_DFL);
    free(stack);
}

// What this program says when it is started with an argument.
static void report(void) {
    printf("started with mask %x, dispositions", blocked());
    for (int i = 0; i < WATCHED; i++) {
        struct sigaction action;
        MUST(!sigaction(watched[i], NULL, &action));
        printf(" %d", action.sa_handler == SIG_IGN ? 1 : action.sa_handler == SIG_DFL ? 0 : 2);
    }
    printf(", pending %x\n", pending());
    fflush(stdout);
}

static void start(const char *self, posix_spawnattr_t *attributes) {
    fflush(stdout);
    pid_t child;
    int status;
    char *arguments[] = {(char *)self, "report", NULL};
    MUST(!posix_spawn(&child, self, NULL, attributes, arguments, environ) && waitpid(child, &status, 0) == child);
    SHOW(status);
}

// Until a process sleeps, and no SIGSYS waits for it; or has ended.
static void until_asleep(pid_t process) {
    char path[32], line[64], state = 'R';
    unsigned long long sent = 1;
    snprintf(path, sizeof path, "/proc/%d/status", process);
    while ((state == 'R' || state == 'D' || sent) && state != 'Z') {
        usleep(10000);
        FILE *file = fopen(path, "r");
        if (!file) return;
        for (sent = 0; fgets(line, sizeof line, file);) {
            unsigned long long set;
            sscanf(line, "State: %c", &state);
            if (sscanf(line, "SigPnd: %llx", &set) == 1 || sscanf(line, "ShdPnd: %llx", &set) == 1) sent |= set >> (SIGSYS - 1) & 1;
        }
        fclose(file);
    }
}

static void children(const char *self) {
    for (int i = 0; i < 4; i++) handle(watched[i], 0, 0);
    signal(SIGUSR2, SIG_IGN), signal(SIGBUS, SIG_IGN);
    mask(SIG_SETMASK, SIGBUS, SIGUSR1);
    start(self, NULL);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    sigset_t set = set_of(SIGILL, SIGTERM);
    posix_spawnattr_setsigmask(&attributes, &set);
    set = set_of(SIGBUS, 0);
    posix_spawnattr_setsigdefault(&attributes, &set);
    start(self, &attributes);
    SHOW(blocked());
    struct sigaction action;
    for (int i = 0; i < 4; i++) MUST(!sigaction(watched[i], NULL, &action)), SHOW(action.sa_sigaction == note);
    fflush(stdout);
    pid_t child = vfork();
    if (!child) {
        signal(SIGILL, SIG_IGN), signal(SIGSYS, SIG_DFL);
        mask(SIG_SETMASK, SIGSYS, SIGILL);
        execl(self, self, "report", NULL);
        _exit(1);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    SHOW(status);
    // An exec that fails changes nothing: an ignored signal interrupts no call.
    int there[2], back_again[2];
    MUST(!pipe(there) && !pipe(back_again));
    fflush(stdout);
    pid_t helper = fork(), sleeper;
    if (!helper) {
        MUST(read(there[0], &sleeper, sizeof sleeper) == sizeof sleeper);
        until_asleep(sleeper), kill(sleeper, SIGSYS), until_asleep(sleeper);
        _exit(write(back_again[1], "x", 1) != 1);
    }
    if (!(child = vfork())) {
        signal(SIGSYS, SIG_IGN);
        execl("/none", "none", NULL);
        pid_t me = getpid();
        char got;
        _exit(write(there[1], &me, sizeof me) == sizeof me && read(back_again[0], &got, 1) == 1 ? 5 : 6);
    }
    MUST(waitpid(child, &status, 0) == child);
    SHOW(WEXITSTATUS(status));
    MUST(waitpid(helper, &status, 0) == helper);
    for (int i = 0; i < 2; i++) close(there[i]), close(back_again[i]);
    // What a vfork child does to its mask is its own: the kernel's promise.
    SHOW(blocked());
    for (int i = 0; i < 4; i++) MUST(!sigaction(watched[i], NULL, &action)), SHOW(action.sa_sigaction == note);
    raise(SIGUSR1), raise(SIGBUS);
    SHOW(touch(MIB));
    fflush(stdout);
    if (!(child = fork())) {
        handle(SIGBUS, 0, 0), handle(SIGILL, 0, 0);
        SHOW(pending());
        SHOW(blocked());
        raise(SIGILL);
        seen();
        SHOW(touch(30 * MIB));
        fflush(stdout);
        execl(self, self, "report", NULL);
        _exit(1);
    }
    MUST(waitpid(child, &status, 0) == child);
    SHOW(status);
    SHOW(system("exit 3") >> 8);
    for (int i = 0; i < WATCHED; i++) signal(watched[i], SIG_IGN);
    everything(SIG_UNBLOCK);
}

// A handler is told whether there is no memory or memory that may not be touched; on the monitor path nobody could.
static void unmapped(void) {
    const char *path = getenv("HINTERLAND_FAULT_PATH");
    const int is_told = !path || strcmp(path, "monitor");
    char *at = mmap(NULL, 4 * STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED && !munmap(at + STEP, STEP) && !mprotect(at + 2 * STEP, STEP, PROT_NONE));
    handle(SIGSEGV, 0, 0);
    jump = 1;
    for (int part = 1; part < 3; part++)
        if (!sigsetjmp(back, 1)) at[part * STEP + 8] = 1;
        else SHOW(!is_told || seen_code == (part == 1 ? SEGV_MAPERR : SEGV_ACCERR)), SHOW(seen_address == at + part * STEP + 8);
    jump = 0;
    signal(SIGSEGV, SIG_DFL), munmap(at, 4 * STEP);
}

int main(int count, char **arguments) {
    if (count > 1) return report(), 0;
    far = malloc(FAR_BYTES);
    for (size_t at = 0; at < FAR_BYTES; at += STEP) *(uint64_t *)(far + at) = mix(at);
    set_before_the_start();
    first_on_a_coroutine();
    dispositions();
    masks();
    hold_and_release();
    caused();
    unmapped();
    on_a_leaving_stack();
    edited_mask();
    alternate(NULL);
    pthread_t thread;
    MUST(!pthread_create(&thread, NULL, alternate, NULL) && !pthread_join(thread, NULL));
    told_on_alternate();
    storm();
    changed_under_signals();
    changed_actions();
    sent_while_asking();
    leave_a_read();
    waits();
    small_stacks();
    on_malloced_stacks();
    interrupted_and_disarmed();
    children(arguments[0]);
}
