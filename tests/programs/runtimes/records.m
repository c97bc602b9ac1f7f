% Vectors in a cell array, visited and replaced in random order. usage: octave-cli records.m MEBIBYTES
count = floor(str2double(argv(){1}) * 1048576 / 400);
records = cell(count, 1);
ones28 = ones(1, 28);
for i = 1:count
    records{i} = ones28 * i;
end
x = 1;
total = 0;
for visit = 1:24000
    x = mod(x * 69069 + 12345, 2147483648);
    at = mod(floor(x / 16), count) + 1;
    total = mod(total * 31 + records{at}(mod(x, 28) + 1), 4294967296);
    if mod(visit, 4) == 0
        records{at} = ones28 * x;
    end
end
printf("%d records, sum %d\n", count, total);
