#include "utf8.h"

size_t dpb_utf8_length(const char *bytes, size_t count)
{
    const unsigned char *text = (const unsigned char *)bytes;
    unsigned char low = 0x80, high = 0xbf; /* of the second byte */
    size_t length, i;

    if (count == 0)
        return 0;
    if (text[0] < 0x80)
        return 1;
    if (text[0] >= 0xc2 && text[0] <= 0xdf)
        length = 2;
    else if (text[0] >= 0xe0 && text[0] <= 0xef)
        length = 3;
    else if (text[0] >= 0xf0 && text[0] <= 0xf4)
        length = 4;
    else
        return 0;
    if (text[0] == 0xe0)
        low = 0xa0;
    else if (text[0] == 0xed)
        high = 0x9f;
    else if (text[0] == 0xf0)
        low = 0x90;
    else if (text[0] == 0xf4)
        high = 0x8f;
    if (length > count || text[1] < low || text[1] > high)
        return 0;
    for (i = 2; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}
