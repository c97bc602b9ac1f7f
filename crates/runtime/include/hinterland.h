/* What a program says to Hinterland while it runs. A program that is built with this header needs no library of Hinterland's: where it runs
 * without Hinterland, each call does nothing and returns 0.
 *
 *     cc $(pkg-config --cflags hinterland) fft.c
 *
 *     hinterland_begin(HINTERLAND_AUTO);
 *     double *data = malloc(bytes);
 *     transform(data);
 *     hinterland_end();
 */
#ifndef HINTERLAND_H
#define HINTERLAND_H

#ifdef __cplusplus
extern "C" {
#endif

/* What is to be done in an interval, and what hinterland_begin() says is done. */
enum {
    /* Nothing. */
    HINTERLAND_NONE = 0,
    /* References are recorded if the run records (hinterland trace); no tape is followed. */
    HINTERLAND_RECORD = 1,
    /* The tape is followed if the run has one (hinterland run --tape); nothing is recorded. */
    HINTERLAND_PREFETCH = 2,
    /* Whichever of both the run does. */
    HINTERLAND_AUTO = 3
};

/* Without noplt, code that is not position-independent would be linked with the address 0. */
#if defined(__has_attribute)
#if __has_attribute(noplt)
#define HINTERLAND_OPTIONAL __attribute__((weak, noplt))
#endif
#endif
#ifndef HINTERLAND_OPTIONAL
#define HINTERLAND_OPTIONAL __attribute__((weak))
#endif

/* Begins an interval of the process. Before the first one, between them and after the last one nothing is recorded and no tape is followed;
 * pages that were allocated there (touched for the first time since they were mapped) are not recorded in an interval either. So begin it
 * before memory is allocated. An interval inside another one changes nothing.
 *
 * Returns what is done in the outermost one, or -1 with errno EINVAL where there is no such mode. */
extern int hinterland_begin(int mode) HINTERLAND_OPTIONAL;
#define hinterland_begin(mode) (hinterland_begin ? hinterland_begin(mode) : HINTERLAND_NONE)

/* Ends the interval that began last. Returns 0, or -1 with errno EINVAL where there is none. */
extern int hinterland_end(void) HINTERLAND_OPTIONAL;
#define hinterland_end() (hinterland_end ? hinterland_end() : 0)

#ifdef __cplusplus
}
#endif

#endif
