-- Unboxed arrays in a mutable array, visited and replaced in random order, under a copying collector. usage: records MEBIBYTES
import Control.Monad (forM_, when)
import Data.Array.IO (IOArray, newArray, readArray, writeArray)
import Data.Array.Unboxed (UArray, listArray, (!))
import Data.Bits ((.&.))
import System.Environment (getArgs)

record :: Int -> UArray Int Int
record i = listArray (0, 27) [i ..]

main :: IO ()
main = do
    [mebibytes] <- map read <$> getArgs
    let count = mebibytes * 1048576 `div` 320 :: Int
    records <- newArray (0, count - 1) (record 0) :: IO (IOArray Int (UArray Int Int))
    forM_ [0 .. count - 1] $ \i -> writeArray records i $! record i
    let visit :: Int -> Int -> Int -> IO Int
        visit 24001 _ found = return found
        visit n x0 found0 = do
            let x = (x0 * 1103515245 + 12345) .&. 0x7fffffff
                at = x `div` 16 `mod` count
            here <- readArray records at
            let found = (found0 * 31 + here ! (x `mod` 28)) .&. 0xffffffff
            when (n `mod` 4 == 0) $ writeArray records at $! record x
            found `seq` visit (n + 1) x found
    found <- visit 1 1 0
    putStrLn $ show count ++ " records, sum " ++ show found
