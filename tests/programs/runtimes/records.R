# Numbers in a list of vectors, visited and replaced in random order. usage: Rscript records.R MEBIBYTES
count <- as.integer(commandArgs(TRUE)[1]) * 1048576 %/% 280
record <- function(i) i + 0:27
records <- lapply(seq_len(count), record)
x <- 1
sum <- 0
for (visit in 1:24000) {
    x <- (x * 69069 + 12345) %% 2147483648
    at <- x %/% 16 %% count + 1
    sum <- (sum * 31 + records[[at]][x %% 28 + 1]) %% 4294967296
    if (visit %% 4 == 0) records[[at]] <- record(x)
}
cat(sprintf("%d records, sum %.0f\n", count, sum))
