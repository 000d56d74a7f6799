echo slow >> ran.txt; if [ ! -e once ]; then touch once; echo half > half.txt; exec sleep 60; fi
