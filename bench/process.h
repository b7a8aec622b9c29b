/*
 * Processor time and memory of a process. Its processor clock counts nanoseconds of all threads, also of those that ended.
 */
#pragma once
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Seconds of processor time, user and system; 0 if the process has ended. */
static double process_cpu(int pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t)) return 0;
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Resident memory in MiB. */
static double process_rss_mb(int pid) {
    char path[64];
    long all, resident;
    sprintf(path, "/proc/%d/statm", pid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    int found = fscanf(f, "%ld %ld", &all, &resident);
    fclose(f);
    return found == 2 ? resident * (double)sysconf(_SC_PAGESIZE) / 1048576 : 0;
}

static double own_cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}
