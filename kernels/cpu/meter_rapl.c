#include "dpb_meter_rapl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_units.h"

#define SYSTEM_FOLDER "/sys/class/powercap"
#define PACKAGES_MAX  32

/* A package's counter, and how far it counts before it starts again at 0. */
struct package {
    int fd;
    int64_t range_uj, last_uj;
};

struct dpb_meter {
    struct package packages[PACKAGES_MAX];
    int count;
    int64_t energy_uj; /* of all packages since open() */
    bool lost;         /* it is not known, and stays so */
    int64_t last_ns;
};

static const char *folder = SYSTEM_FOLDER;

void dpb_meter_rapl_use(const char *other)
{
    folder = other ? other : SYSTEM_FOLDER;
}

static int open_file(int package, const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/intel-rapl:%d/%s", folder, package, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* The number in a file; negative when it cannot be read. */
static int64_t read_number(int fd)
{
    char text[32];
    ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
    int64_t value;

    if (got <= 0)
        return -1;
    text[got] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return dpb_parse_i64(text, &value, NULL) == DPB_OK ? value : -1;
}

static dpb_status rapl_probe(char *why, size_t why_bytes)
{
    int fd = open_file(0, "energy_uj");
    int64_t value;

    if (fd < 0) {
        snprintf(why, why_bytes,
                 "not available here, because %s/intel-rapl:0/energy_uj cannot be opened: %s%s",
                 folder, strerror(errno),
                 errno == EACCES ? "; only root may, until it is told otherwise with chmod" : "");
        return DPB_ERR_UNAVAILABLE;
    }
    value = read_number(fd);
    close(fd);
    if (value >= 0)
        return DPB_OK;
    snprintf(why, why_bytes, "not available here, because %s/intel-rapl:0/energy_uj is no number",
             folder);
    return DPB_ERR_UNAVAILABLE;
}

/* Packages are numbered without gaps. */
static void open_packages(struct dpb_meter *meter)
{
    while (meter->count < PACKAGES_MAX) {
        struct package *package = &meter->packages[meter->count];
        int range_fd;

        package->fd = open_file(meter->count, "energy_uj");
        if (package->fd < 0)
            return;
        range_fd = open_file(meter->count, "max_energy_range_uj");
        package->range_uj = range_fd < 0 ? -1 : read_number(range_fd);
        if (range_fd >= 0)
            close(range_fd);
        package->last_uj = read_number(package->fd);
        meter->count++;
    }
}

static dpb_status rapl_open(const struct dpb_meter_config *config, dpb_meter **meter, char *why,
                            size_t why_bytes)
{
    struct dpb_meter *opened;

    (void)config;
    DPB_TRY(rapl_probe(why, why_bytes));
    opened = calloc(1, sizeof(*opened));
    if (!opened) {
        snprintf(why, why_bytes, "out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    opened->last_ns = dpb_clock_now_ns();
    open_packages(opened);
    *meter = opened;
    return DPB_OK;
}

/* Energy since the reading before; negative when it is not known. */
static int64_t advance(struct package *package)
{
    int64_t now_uj = read_number(package->fd), since_uj;

    if (now_uj < 0 || package->last_uj < 0)
        return -1;
    since_uj = now_uj - package->last_uj;
    if (since_uj < 0)
        since_uj = package->range_uj > 0 ? since_uj + package->range_uj : -1;
    package->last_uj = now_uj;
    return since_uj;
}

static void rapl_read(dpb_meter *meter, struct dpb_meter_sample *sample)
{
    int64_t now_ns = dpb_clock_now_ns();

    meter->lost |= now_ns - meter->last_ns > DPB_RAPL_GAP_NS_MAX;
    for (int i = 0; i < meter->count; i++) {
        int64_t since_uj = advance(&meter->packages[i]);

        meter->lost |= since_uj < 0;
        meter->energy_uj += since_uj;
    }
    meter->last_ns = now_ns;
    *sample = (struct dpb_meter_sample){
            .time_ns = now_ns,
            .energy_mj = meter->lost ? DPB_METER_NONE : meter->energy_uj / 1000,
            .power_mw = DPB_METER_NONE,
            .clock_mhz = DPB_METER_NONE,
            .memory_clock_mhz = DPB_METER_NONE,
            .temperature_c = DPB_METER_NONE,
            .throttle = DPB_METER_NONE,
    };
}

static void rapl_close(dpb_meter *meter)
{
    for (int i = 0; meter && i < meter->count; i++)
        close(meter->packages[i].fd);
    free(meter);
}

const struct dpb_meter_ops dpb_meter_rapl_ops = {
        .version = DPB_METER_OPS_VERSION,
        .name = "rapl",
        .summary = "energy of this machine's processor packages, by RAPL",
        .flags = DPB_METER_MACHINE,
        .probe = rapl_probe,
        .open = rapl_open,
        .read = rapl_read,
        .close = rapl_close,
};
