; Byte vectors in a vector, visited and replaced in random order. usage: sbcl --script records.lisp MEBIBYTES
(let* ((count (floor (* (parse-integer (car (last sb-ext:*posix-argv*))) 1048576) 272)) (records (make-array count)) (x 1) (sum 0))
  (flet ((record (i) (make-array 252 :element-type '(unsigned-byte 8) :initial-element (mod i 251))))
    (dotimes (i count) (setf (aref records i) (record i)))
    (loop for visit from 1 to 24000 do
      (setf x (logand (+ (* x 1103515245) 12345) #x7fffffff))
      (let ((at (mod (ash x -4) count)))
        (setf sum (logand (+ (* sum 31) (aref (the (simple-array (unsigned-byte 8) (*)) (aref records at)) (mod x 252))) #xffffffff))
        (when (zerop (mod visit 4)) (setf (aref records at) (record x)))))
    (format t "~a records, sum ~a~%" count sum)))
