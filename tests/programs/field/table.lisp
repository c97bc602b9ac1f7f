; Lists and strings in a hash table, with full collections between.
(let ((table (make-hash-table)) (sum 0))
  (dotimes (round 3)
    (dotimes (i 100000)
      (setf (gethash i table) (list i (* i round) (make-string 40 :initial-element #\a))))
    (gc :full t))
  (maphash (lambda (key value) (incf sum (+ key (second value) (length (third value))))) table)
  (format t "~a entries, sum ~a~%" (hash-table-count table) sum))
