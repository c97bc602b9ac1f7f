#lang racket/base
; Byte strings in a vector, visited in another order.
(define count 250000)
(define records (build-vector count (lambda (i) (make-bytes 252 (modulo i 251)))))
(define sum
  (for/fold ([sum 0]) ([visit (in-range 24000)])
    (modulo (+ (* sum 31) (bytes-ref (vector-ref records (modulo (* visit 7919) count)) 17)) 4294967296)))
(printf "~a records, sum ~a\n" count sum)
