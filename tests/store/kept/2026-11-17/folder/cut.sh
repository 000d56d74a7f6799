echo "cut $1" >> ran.txt; if [ -e runner.pid ]; then kill -9 "$(cat runner.pid)"; exec sleep 60; fi
