(* Bytes in an array, visited and replaced in random order. usage: ocaml records.ml MEBIBYTES *)
let count = (int_of_string Sys.argv.(1) lsl 20) / 272
let record i = Bytes.make 252 (Char.chr (i mod 251))
let records = Array.init count record
let x = ref 1 and sum = ref 0

let () =
  for visit = 1 to 24000 do
    x := ((!x * 1103515245) + 12345) land 0x7fffffff;
    let at = (!x lsr 4) mod count in
    sum := ((!sum * 31) + Char.code (Bytes.get records.(at) (!x mod 252))) land 0xffffffff;
    if visit mod 4 = 0 then records.(at) <- record !x
  done;
  Printf.printf "%d records, sum %d\n" count !sum
