/* shm_row_distance.h: how far apart the regions of a row lie, so that streaming them together is
 * fast. */
#ifndef DPB_SHM_ROW_DISTANCE_H
#define DPB_SHM_ROW_DISTANCE_H

#include <stddef.h>

/* Bytes from one rank's region to the next one's: the least multiple of `page_bytes`, at least
 * `region_bytes` (itself a multiple), with which the same place of any two of `ranks` regions has
 * different tags in the first-level cache of AMD's Zen, whatever address the row begins at. Exists
 * with pages of 4 KiB, less than 2 MiB above `region_bytes`; where there is none, `region_bytes`.
 *
 * There a load looks only into the way whose tag is a hash of its linear address, bits 12 to 27 in
 * pairs. Two lines of the same set with one hash evict each other at each access: with regions 256
 * MiB apart, adding one to the other runs at a fifteenth of its speed (Zen 3). The hash: Lipp et
 * al., "Take A Way: Exploring the Security Implications of AMD's Cache Way Predictors", 2020. */
size_t dpb_shm_row_distance(size_t region_bytes, size_t page_bytes, int ranks);

#endif
