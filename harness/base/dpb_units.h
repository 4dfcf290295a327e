/* dpb_units.h: sizes, durations and rates as text, strictly, both ways.
 *
 * Parsing takes the whole string or nothing: no trailing characters, no "inf" or "nan", no
 * overflow, a decimal point whatever the locale. Powers of ten and of two are distinct:
 *   size      "25MiB" = 25 * 2^20 bytes, "25MB" = 25 * 10^6; B K KB KiB M MB MiB G GB GiB T TB TiB;
 *             a bare number is bytes; K, M, G, T alone are binary (KiB ...), as documented by
 *             nccl-tests and PyTorch users' habit
 *   duration  "250ms"; ns us ms s min h; the unit is required, except for 0
 *   rate      "25Gbps" = 25e9 bit/s, "3GB/s" = 3e9 byte/s; bps Kbps Mbps Gbps Tbps and
 *             B/s KB/s KiB/s MB/s MiB/s GB/s GiB/s TB/s; the unit is required
 *   ratio     "85%" = 0.85, "0.85"
 * A unit is matched exactly, letter case included, except that a lower-case k, m, g, t prefix of a
 * size is accepted ("10k", "4mib").
 *
 * Each parser returns DPB_OK, or DPB_ERR_USAGE with the reason (a phrase such as
 * "unknown unit 'XB'; use B, KB, KiB, ...") in `why`, which may be NULL. Nothing is logged. */
#ifndef DPB_UNITS_H
#define DPB_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_WHY_BYTES 256

dpb_status dpb_parse_i64(const char *text, int64_t *value, char why[DPB_WHY_BYTES]);
dpb_status dpb_parse_f64(const char *text, double *value, char why[DPB_WHY_BYTES]);
/* on off true false yes no 1 0 */
dpb_status dpb_parse_bool(const char *text, bool *value, char why[DPB_WHY_BYTES]);
dpb_status dpb_parse_size(const char *text, int64_t *bytes, char why[DPB_WHY_BYTES]);
dpb_status dpb_parse_duration(const char *text, int64_t *ns, char why[DPB_WHY_BYTES]);
dpb_status dpb_parse_rate(const char *text, double *bytes_per_s, char why[DPB_WHY_BYTES]);
dpb_status dpb_parse_ratio(const char *text, double *ratio, char why[DPB_WHY_BYTES]);

/* Exact text that parses back to the same value: the largest binary unit that divides it
 * ("25MiB", "1000B"), the largest time unit that divides it ("250ms"), the shortest digits for a
 * rate ("25Gbps"). `text` gets at most `text_bytes`, always terminated. */
#define DPB_UNIT_TEXT_BYTES 48
void dpb_format_size(int64_t bytes, char *text, size_t text_bytes);
void dpb_format_duration(int64_t ns, char *text, size_t text_bytes);
void dpb_format_rate(double bytes_per_s, char *text, size_t text_bytes);

/* For people: about `digits` significant digits and a fitting unit, "9.27 MiB", "31.2 ms",
 * "3.12 GB/s". Not parsed back. */
void dpb_human_size(double bytes, int digits, char *text, size_t text_bytes);
void dpb_human_duration(double ns, int digits, char *text, size_t text_bytes);
void dpb_human_rate(double bytes_per_s, int digits, char *text, size_t text_bytes);

/* A double as the shortest decimal text that reads back to the same bits, with '.' whatever the
 * locale; "null" for a value that is not finite. */
void dpb_format_f64(double value, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
