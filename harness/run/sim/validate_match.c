/* What published tables call machines and systems. Rules look at what was run, never at what came
 * out of it. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "validate.h"

void validate_squeeze(const char *text, char *squeezed, size_t bytes)
{
    size_t length = 0;

    for (; *text && length + 1 < bytes; text++)
        if (isalnum((unsigned char)*text))
            squeezed[length++] = (char)tolower((unsigned char)*text);
    squeezed[length] = '\0';
}

#define TEXT_BYTES 512

static void lower(const char *text, char *low, size_t bytes)
{
    size_t i = 0;

    for (; text[i] && i + 1 < bytes; i++)
        low[i] = (char)tolower((unsigned char)text[i]);
    low[i] = '\0';
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

void validate_project(const char *source, char *project, size_t bytes)
{
    const char *end;
    int slashes = 0;

    for (const char *prefix = "github.com/"; has(source, prefix);)
        source = strstr(source, prefix) + strlen(prefix);
    for (end = source; *end && !strchr("@:, (", *end); end++)
        if (*end == '/' && ++slashes == 2)
            break;
    if (strncmp(source, "arXiv ", 6) == 0) /* "arXiv 1706.02677 abstract" */
        end = source + 6 + strcspn(source + 6, " ");
    snprintf(project, bytes, "%.*s", (int)(end - source), source);
}

/* ---- machines ---- */

/* The first of these that fits: the accelerator's text, and a text of it or of the interconnect;
 * small letters. */
static const struct {
    const char *gpu, *and_gpu, *and_any, *machine;
} machines[] = {
        {"k80", NULL, NULL, "aws-p2-8xlarge"},
        {"p100", NULL, NULL, "dgx-1p"},
        {"pascal", NULL, NULL, "dgx-1p"},
        {"v100", "pcie", NULL, NULL},
        {"v100", NULL, "p3.16xlarge", "aws-p3-16xlarge"},
        {"v100", NULL, "p3dn", "aws-p3-16xlarge"},
        {"v100", NULL, "dgx-2", "dgx-2h"},
        {"v100", NULL, "dgx2", "dgx-2h"},
        {"v100-sxm3", NULL, NULL, "dgx-2h"},
        {"v100", NULL, NULL, "dgx-1v"},
        {"a100", "pcie", NULL, "a100-pcie"},
        {"a100", NULL, "p4d", "aws-p4d"},
        {"a100", NULL, "nd96", "azure-nd-a100-v4"},
        {"a100", NULL, NULL, "dgx-a100"},
        {"gh200", NULL, NULL, NULL},
        {"gb200", NULL, NULL, NULL},
        {"h100", "pcie", NULL, NULL},
        {"h100", "nvl", NULL, NULL},
        {"h100", NULL, "p5.", "aws-p5"},
        {"h100", NULL, "a3-high", "gcp-a3-highgpu"},
        {"h100", NULL, "nd h100", "azure-nd-h100-v5"},
        {"h100", NULL, NULL, "dgx-h100"},
        {"h200", NULL, NULL, "h200-p5en"},
        {"b200", NULL, NULL, "b200-p6"},
        {"mi300x", NULL, NULL, "mi300x"},
};

static void find_machine(const char *gpu, const char *any, struct validate_machine *machine)
{
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        if (!has(gpu, machines[i].gpu) || (machines[i].and_gpu && !has(gpu, machines[i].and_gpu)) ||
            (machines[i].and_any && !has(any, machines[i].and_any)))
            continue;
        if (machines[i].machine)
            snprintf(machine->name, sizeof(machine->name), "%s", machines[i].machine);
        return;
    }
}

/* The whole number at `at`, of accelerators of a node; 0: none that can be. */
static int per_node_at(const char *at)
{
    const long count = strtol(at, NULL, 10);

    return count > 0 && count <= 1024 ? (int)count : 0;
}

/* "4 per server", "4 servers x 4": accelerators of a node; 0: nothing is said. */
static int per_node_of(const char *text)
{
    static const char *const units[] = {"per server", "per machine", "per node"};

    for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
        const char *at = strstr(text, units[u]);

        while (at && at > text && (at[-1] == ' ' || isdigit((unsigned char)at[-1])))
            at--;
        if (at && per_node_at(at))
            return per_node_at(at);
    }
    const char *times = strstr(text, " x ");
    return times && (has(text, "nodes x") || has(text, "servers x")) ? per_node_at(times + 3) : 0;
}

/* Bits per second that a number is followed by: "100 Gb/s", "200Gb/sec", "25 GbE", "400Gbps", "25
 * Gbit/s". 0: no such rate; GB are bytes, of links inside a node. */
static double bits_at(const char *at)
{
    char *end;
    const double number = strtod(at, &end);

    while (*end == ' ')
        end++;
    return strncmp(end, "Gb", 2) == 0 ? 1e9 * number : 0;
}

/* Not within a name or a number: "100", "4x100", but not "connectx-6" or "gen4". */
static bool number_begins(const char *text, const char *at)
{
    return isdigit((unsigned char)*at) &&
           (at == text || at[-1] == 'x' ||
            !(isalnum((unsigned char)at[-1]) || strchr(".-", at[-1])));
}

/* The fastest network of a clause, and how many cards are said to have it: "4x100Gb IB", "8x
 * ConnectX-6 IB HDR 200Gb/sec". */
static void find_cards(const char *part, struct validate_machine *machine)
{
    long cards = 1;

    for (const char *at = part; *at; at++) {
        char *end;

        if (!number_begins(part, at))
            continue;
        const long count = strtol(at, &end, 10);
        const double bits = bits_at(at);

        if (*end == 'x' && count > 0 && count <= 64)
            cards = count;
        if (bits < 1e9 || bits > 1e12 || bits / 8 < machine->nic_bytes_per_s)
            continue;
        machine->nic_bytes_per_s = bits / 8;
        machine->nics = (int)cards;
    }
}

/* Clauses of a description: "NVLink + 4x100Gb IB", "Storage: ..., Compute: 8x ...". */
static void find_network(const char *text, struct validate_machine *machine)
{
    char part[TEXT_BYTES], small[TEXT_BYTES];

    while (*text) {
        const size_t length = strcspn(text, "|,;+");

        snprintf(part, sizeof(part), "%.*s", (int)length, text);
        lower(part, small, sizeof(small));
        text += length + (text[length] != '\0');
        if (!has(small, "storage") && !has(small, "management") && !has(small, "nvlink") &&
            !has(small, "nvswitch") && !has(small, "pcie"))
            find_cards(part, machine);
    }
}

void validate_match_machine(const struct validate_row *row, struct validate_machine *machine)
{
    char gpu[TEXT_BYTES], link[TEXT_BYTES], both[2 * TEXT_BYTES];

    *machine = (struct validate_machine){.link = VALIDATE_RDMA};
    lower(row->gpu, gpu, sizeof(gpu));
    lower(row->interconnect, link, sizeof(link));
    snprintf(both, sizeof(both), "%s %s", gpu, link);
    find_machine(gpu, both, machine);
    machine->per_node = per_node_of(gpu);
    find_network(row->interconnect, machine);
    machine->one_node = has(link, "intra-node") || has(link, "single node") || !link[0];
    /* Tables of clouds and of commodity clusters; InfiniBand and RoCE where they are named. */
    if ((has(link, "ethernet") || has(link, "tcp") || has(link, "ec2") || has(link, "gbe") ||
         has(link, "ena")) &&
        !has(link, "ib ") && !has(link, "infiniband") && !has(link, "roce/") &&
        !has(link, "connectx") && !has(link, "efa"))
        machine->link = VALIDATE_ETHERNET;
    if (has(link, "roce/tcp")) /* one table of both: the system says which */
        machine->link = has(row->system, "TCP") ? VALIDATE_ETHERNET : VALIDATE_RDMA;
}

/* ---- systems ---- */

/* In this order; small letters. */
static const struct {
    const char *text;
    struct validate_system system;
} systems[] = {
        {"parameter_server", {.why = "a parameter server, which is not modelled"}},
        {"parameter server", {.why = "a parameter server, which is not modelled"}},
        {"(ps", {.why = "a parameter server, which is not modelled"}},
        {"byteps", {.why = "a parameter server, which is not modelled"}},
        {"hybrid parallel", {.why = "not data parallel alone"}},
        {"hugectr", {.why = "not data parallel alone"}},
        {"torchrec", {.why = "not data parallel alone"}},
        {"model-parallel", {.why = "not data parallel alone"}},
        {"megatron", {.why = "not data parallel alone"}},
        {"pipeline", {.why = "not data parallel alone"}},
        {"on cpu", {.why = "reduces in the host's memory, which is not modelled"}},
        {"mpi)", {.why = "reduces in the host's memory, which is not modelled"}},
        {"gloo", {.why = "reduces in the host's memory, which is not modelled"}},
        {"no ddp", {.why = "one accelerator without a strategy"}},
        {"vendor implementation", {.why = "the strategy is not stated"}},
        {"zero3", {.strategy = "fsdp"}},
        {"zero-3", {.strategy = "fsdp"}},
        {"fsdp", {.strategy = "fsdp"}},
        {"zero2", {.strategy = "zero2"}},
        {"zero-2", {.strategy = "zero2"}},
        {"zero", {.strategy = "zero1"}},
        {"distributed_replicated", {.strategy = "mwms", .wide_gradients = true}},
        {"multi_worker", {.strategy = "mirrored", .wants_mwms = true, .wide_gradients = true}},
        {"multiworker", {.strategy = "mirrored", .wants_mwms = true, .wide_gradients = true}},
        {"mirrored", {.strategy = "mirrored", .wants_mwms = true, .wide_gradients = true}},
        {"replicated", {.strategy = "mirrored", .wide_gradients = true}},
        {"horovod", {.strategy = "horovod"}},
        {"paddle", {.strategy = "ddp", .bucket_mib = 32}},
        {"apex/ddp", {.strategy = "ddp"}},
        {"ddp", {.strategy = "ddp"}},
        {"apex", {.strategy = "ddp", .after_backward = true}},
        {"pytorch", {.strategy = "ddp"}},
        {"lightning", {.strategy = "ddp"}},
};

void validate_match_system(const struct validate_row *row, struct validate_system *system)
{
    char text[TEXT_BYTES];
    const char *bucket;

    lower(row->system, text, sizeof(text));
    *system = (struct validate_system){.why = "the strategy is not known"};
    for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++) {
        if (has(text, systems[i].text)) {
            *system = systems[i].system;
            break;
        }
    }
    bucket = strstr(text, "bucket_cap_mb=");
    if (bucket && system->strategy && strcmp(system->strategy, "ddp") == 0)
        system->bucket_mib = (int)strtol(bucket + strlen("bucket_cap_mb="), NULL, 10);
    if (has(row->precision, "fp32 allreduce"))
        system->wide_gradients = true;
}
