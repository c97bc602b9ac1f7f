// Slices in a slice, visited and replaced in random order; with C beside it, so that the loader brings the program. usage: records MEBIBYTES
package main

// #include <stdint.h>
// static uint32_t mixed(uint32_t sum, uint8_t byte) { return sum * 31 + byte; }
import "C"

import (
	"fmt"
	"os"
	"strconv"
)

func record(i uint32) []byte {
	bytes := make([]byte, 252)
	for at := range bytes {
		bytes[at] = byte(i % 251)
	}
	return bytes
}

func main() {
	mebibytes, _ := strconv.Atoi(os.Args[1])
	records := make([][]byte, (mebibytes<<20)/280)
	for i := range records {
		records[i] = record(uint32(i))
	}
	x, sum := uint32(1), C.uint32_t(0)
	for visit := 1; visit <= 24000; visit++ {
		x = x*1103515245 + 12345
		at := int(x>>4) % len(records)
		sum = C.mixed(sum, C.uint8_t(records[at][x%252]))
		if visit%4 == 0 {
			records[at] = record(x)
		}
	}
	fmt.Println(len(records), "records, sum", uint32(sum))
}
