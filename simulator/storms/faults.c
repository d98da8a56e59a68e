/* Faults below a real node: its clock, and the files of one folder. Loaded with LD_PRELOAD.

   What is to go wrong is in a page of numbers that the test shares with the process (`faults.py` has
   the same order), so that it can change while the node runs. A write is noted with what it replaces;
   after a kill the test can then undo all writes since the last honest sync, as a power cut does.
   Files are followed by the path that they were opened under; the kernel does everything else. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { CLOCK, ROOM, OPENS, READS, WRITES, TEAR, SYNCS, NOTES, DONE_WRITES, DONE_SYNCS, NUMBERS };
enum { HONEST, LYING, FAILING };
#define FILES 65536
#define NEVER (-1)

static int64_t nothing[NUMBERS] = {0, NEVER, 0, NEVER, NEVER, NEVER, HONEST, 0, 0, 0};
static volatile int64_t *page = nothing;
static char folder[4096];
static int notes = -1;
static unsigned char is_ours[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void load(void) {
    const char *control = getenv("DENWATCH_FAULTS");
    const char *where = getenv("DENWATCH_FAULTS_FOLDER");
    if (!control || !where) return;
    int file = open(control, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *found = mmap(NULL, NUMBERS * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (found == MAP_FAILED) return;
    page = found;
    const char *undo = getenv("DENWATCH_FAULTS_UNDO");
    if (undo) notes = open(undo, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    strncpy(folder, where, sizeof folder - 1);
}

/* Whether a countdown reaches zero with this call; it stays there. */
static int is_due(int which) {
    if (page[which] == NEVER) return 0;
    if (page[which] > 0) {
        page[which]--;
        return 0;
    }
    return 1;
}

static int note_file(int file, const char *path) {
    if (file >= 0 && file < FILES)
        is_ours[file] = folder[0] && strncmp(path, folder, strlen(folder)) == 0;
    return file;
}

static int follows(int file) { return file >= 0 && file < FILES && is_ours[file]; }

/* Whether an open must fail: a new file needs room. */
static int refuses(const char *path, int flags) {
    if (!folder[0] || strncmp(path, folder, strlen(folder)) != 0) return 0;
    if (page[OPENS]) {
        errno = (int)page[OPENS];
        return 1;
    }
    struct stat found;
    if ((flags & O_CREAT) && page[ROOM] == 0 && stat(path, &found) != 0) {
        errno = ENOSPC;
        return 1;
    }
    return 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        if (refuses(path, flags)) return -1; \
        return note_file(real(path, flags, mode), path); \
    }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        if (refuses(path, flags)) return -1; \
        return note_file(real(at, path, flags, mode), path); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int close(int file) {
    REAL(close);
    if (file >= 0 && file < FILES) is_ours[file] = 0;
    return real(file);
}

/* Notes: kind, inode, offset, size of the file before, number of bytes that were replaced; bytes. */
enum { WRITTEN, SYNCED };

static void note(int kind, int file, off_t offset, size_t size) {
    if (notes < 0 || !page[NOTES]) return;
    struct stat found;
    if (fstat(file, &found)) return;
    size_t old = 0;
    if (offset < found.st_size) old = (size_t)(found.st_size - offset);
    if (old > size) old = size;
    char *bytes = old ? malloc(old) : NULL;
    if (old) {
        ssize_t (*get)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread64");
        ssize_t got = get(file, bytes, old, offset);
        if (got < 0) { /* opened for writing only */
            char self[64];
            snprintf(self, sizeof self, "/proc/self/fd/%d", file);
            int (*open_again)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
            int again = open_again(self, O_RDONLY | O_CLOEXEC);
            got = again < 0 ? 0 : get(again, bytes, old, offset);
            if (again >= 0) close(again);
        }
        old = got < 0 ? 0 : (size_t)got;
    }
    int64_t head[5] = {kind, (int64_t)found.st_ino, offset, found.st_size, (int64_t)old};
    struct iovec parts[2] = {{head, sizeof head}, {bytes, old}};
    pthread_mutex_lock(&lock);
    ssize_t done = writev(notes, parts, 2);
    (void)done;
    pthread_mutex_unlock(&lock);
    free(bytes);
}

/* Before a write: 0 to go on, or the number of bytes to write before the power fails, or -1. */
static ssize_t prepare(int file, off_t offset, size_t size) {
    page[DONE_WRITES]++;
    if (is_due(WRITES)) {
        errno = ENOSPC;
        return -1;
    }
    struct stat found;
    if (page[ROOM] != NEVER && !fstat(file, &found)) {
        int64_t more = (int64_t)offset + (int64_t)size - found.st_size;
        if (more > page[ROOM]) {
            errno = ENOSPC;
            return -1;
        }
        if (more > 0) page[ROOM] -= more;
    }
    note(WRITTEN, file, offset, size);
    return is_due(TEAR) ? (ssize_t)(size / 2) : 0;
}

static ssize_t put(int file, const void *bytes, size_t size, off_t offset) {
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
    ssize_t half = prepare(file, offset, size);
    if (half < 0) return -1;
    if (half) {
        real(file, bytes, (size_t)half, offset);
        raise(SIGKILL);
    }
    return real(file, bytes, size, offset);
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t offset) {
    REAL(pwrite);
    return follows(file) ? put(file, bytes, size, offset) : real(file, bytes, size, offset);
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t offset) {
    REAL(pwrite64);
    return follows(file) ? put(file, bytes, size, offset) : real(file, bytes, size, offset);
}

ssize_t write(int file, const void *bytes, size_t size) {
    REAL(write);
    if (!follows(file)) return real(file, bytes, size);
    struct stat found;
    off_t offset = lseek(file, 0, SEEK_CUR);
    if ((fcntl(file, F_GETFL) & O_APPEND) && !fstat(file, &found)) offset = found.st_size;
    ssize_t half = prepare(file, offset, size);
    if (half < 0) return -1;
    if (half) {
        real(file, bytes, (size_t)half);
        raise(SIGKILL);
    }
    return real(file, bytes, size);
}

#define FAIL_READ(file) \
    if (follows(file) && is_due(READS)) { \
        errno = EIO; \
        return -1; \
    }

ssize_t read(int file, void *bytes, size_t size) {
    REAL(read);
    FAIL_READ(file)
    return real(file, bytes, size);
}

ssize_t pread(int file, void *bytes, size_t size, off_t offset) {
    REAL(pread);
    FAIL_READ(file)
    return real(file, bytes, size, offset);
}

ssize_t pread64(int file, void *bytes, size_t size, off64_t offset) {
    REAL(pread64);
    FAIL_READ(file)
    return real(file, bytes, size, offset);
}

static int cut(int file, off_t size) {
    int (*real)(int, off_t) = dlsym(RTLD_NEXT, "ftruncate64");
    struct stat found;
    if (!fstat(file, &found) && found.st_size > size) {
        if (page[ROOM] != NEVER) page[ROOM] += found.st_size - size;
        note(WRITTEN, file, size, (size_t)(found.st_size - size));
    }
    return real(file, size);
}

int ftruncate(int file, off_t size) {
    REAL(ftruncate);
    return follows(file) ? cut(file, size) : real(file, size);
}

int ftruncate64(int file, off64_t size) {
    REAL(ftruncate64);
    return follows(file) ? cut(file, size) : real(file, size);
}

static int sync_file(int file, int (*real)(int)) {
    page[DONE_SYNCS]++;
    if (page[SYNCS] == FAILING) {
        errno = EIO;
        return -1;
    }
    if (page[SYNCS] == LYING) return 0;
    int result = real(file);
    if (!result) note(SYNCED, file, 0, 0);
    return result;
}

int fsync(int file) {
    REAL(fsync);
    return follows(file) ? sync_file(file, real) : real(file);
}

int fdatasync(int file) {
    REAL(fdatasync);
    return follows(file) ? sync_file(file, real) : real(file);
}

/* The wall clock; what measures periods goes on as it is. */

int clock_gettime(clockid_t which, struct timespec *now) {
    REAL(clock_gettime);
    int result = real(which, now);
    if (!result && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE))
        now->tv_sec += page[CLOCK];
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(now, zone);
    if (!result) now->tv_sec += page[CLOCK];
    return result;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
