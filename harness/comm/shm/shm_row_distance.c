#include "shm_row_distance.h"

#include <stdbool.h>
#include <stdint.h>

#define CANDIDATES 512 /* enough for 64 ranks and every size */

/* Of address bits 20 to 27: each at the place of the one of bits 12 to 19 that it is paired with,
 * 20 to 24 with 15 to 19, and 25, 26, 27 with 14, 13, 12. */
static unsigned partners(unsigned high)
{
    return (high << 3 & 0xf8) | (high >> 3 & 4) | (high >> 5 & 2) | (high >> 7 & 1);
}

/* Have two addresses that are so far apart, a multiple of 4 KiB, ever the same hash? They have when
 * their low bits differ where the partners of their high bits do. */
static bool can_collide(uint64_t distance_bytes)
{
    const unsigned low = distance_bytes >> 12 & 0xff, high = distance_bytes >> 20 & 0xff;
    bool differ[2][256] = {{false}}; /* how low bits can differ, without and with a carry */
    for (unsigned at = 0; at < 256; at++)
        differ[(at + low) >> 8][(at ^ (at + low)) & 0xff] = true;
    for (unsigned at = 0; at < 256; at++)
        for (unsigned carry = 0; carry < 2; carry++)
            if (differ[carry][partners((at ^ (at + high + carry)) & 0xff)])
                return true;
    return false;
}

size_t dpb_shm_row_distance(size_t region_bytes, size_t page_bytes, int ranks)
{
    for (size_t pages = 0; pages < CANDIDATES; pages++) {
        const size_t distance = region_bytes + pages * page_bytes;
        int apart = 1;
        while (apart < ranks && !can_collide((uint64_t)distance * (uint64_t)apart))
            apart++;
        if (apart >= ranks)
            return distance;
    }
    return region_bytes;
}
